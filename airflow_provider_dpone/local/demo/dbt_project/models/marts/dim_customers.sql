select c.customer_id, c.customer_name, c.country, c.joined_on, o.first_order_on, o.last_order_on
from {{ ref('stg_customers') }} c
left join {{ ref('int_customer_orders') }} o on o.customer_id = c.customer_id
