select p.product_id, p.product_name, p.category, sum(i.quantity) as units, sum(i.amount) as amount
from {{ ref('dim_products') }} p
join {{ ref('fct_order_items') }} i on i.product_id = p.product_id
group by p.product_id, p.product_name, p.category
