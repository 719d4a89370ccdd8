{{ config(materialized='ephemeral') }}
select order_id, sum(amount) as refunded
from {{ ref('stg_refunds') }}
group by order_id
