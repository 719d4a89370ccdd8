select order_id, amount, paid
from {{ ref('fct_orders') }}
where status <> 'cancelled' and amount <> paid
