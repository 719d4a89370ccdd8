{{ config(materialized='incremental', unique_key='day', incremental_strategy='delete+insert') }}
select ordered_on as day, count(*) as orders, sum(paid - refunded) as revenue
from {{ ref('fct_orders') }}
{% if is_incremental() %}
where ordered_on >= (select max(day) from {{ this }})
{% endif %}
group by ordered_on
