{{ config(materialized='incremental', unique_key='order_item_id', incremental_strategy='delete+insert') }}
select i.order_item_id, i.order_id, i.product_id, i.quantity, i.unit_price, i.amount, o.ordered_on
from {{ ref('stg_order_items') }} i
join {{ ref('stg_orders') }} o on o.order_id = i.order_id
{% if is_incremental() %}
where o.ordered_on >= (select max(ordered_on) from {{ this }})
{% endif %}
