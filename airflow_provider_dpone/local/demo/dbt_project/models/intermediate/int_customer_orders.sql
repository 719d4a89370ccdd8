{{ config(materialized='table') }}
select
    customer_id, count(*) as orders, min(ordered_on) as first_order_on, max(ordered_on) as last_order_on,
    sum(paid - refunded) as revenue
from {{ ref('int_orders_enriched') }}
group by customer_id
