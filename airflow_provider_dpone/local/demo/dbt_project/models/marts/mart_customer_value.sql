select
    c.customer_id, c.customer_name, c.country, o.orders, o.revenue,
    case when o.revenue >= 500 then 'high' when o.revenue >= 100 then 'middle' else 'low' end as segment
from {{ ref('dim_customers') }} c
join {{ ref('int_customer_orders') }} o on o.customer_id = c.customer_id
