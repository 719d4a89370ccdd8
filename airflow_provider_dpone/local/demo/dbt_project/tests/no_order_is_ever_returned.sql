{{ config(tags=['fails_on_purpose'], store_failures=true) }}
select order_id, status
from {{ ref('fct_orders') }}
where status = 'returned'
