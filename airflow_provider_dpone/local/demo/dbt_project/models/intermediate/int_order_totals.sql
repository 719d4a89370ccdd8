{{ config(materialized='table') }}
select order_id, count(*) as lines, sum(quantity) as units, sum(amount) as amount
from {{ ref('stg_order_items') }}
group by order_id
