select p.payment_id, p.order_id, o.customer_id, p.method, p.amount, p.paid_on
from {{ ref('stg_payments') }} p
join {{ ref('stg_orders') }} o on o.order_id = p.order_id
