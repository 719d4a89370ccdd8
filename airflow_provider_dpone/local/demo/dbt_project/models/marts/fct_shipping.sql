{{ config(materialized='view') }}
select order_id, ordered_on, first_shipped_on, {{ dbt.datediff('ordered_on', 'first_shipped_on', 'day') }} as days_to_ship
from {{ ref('fct_orders') }}
where first_shipped_on is not null
