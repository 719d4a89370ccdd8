select
    o.order_id, o.customer_id, o.ordered_on, o.status, t.lines, t.units, t.amount,
    coalesce(p.paid, 0) as paid, coalesce(r.refunded, 0) as refunded, s.first_shipped_on
from {{ ref('stg_orders') }} o
join {{ ref('int_order_totals') }} t on t.order_id = o.order_id
left join {{ ref('int_paid_by_order') }} p on p.order_id = o.order_id
left join {{ ref('int_refunded_by_order') }} r on r.order_id = o.order_id
left join {{ ref('int_first_shipment') }} s on s.order_id = o.order_id
