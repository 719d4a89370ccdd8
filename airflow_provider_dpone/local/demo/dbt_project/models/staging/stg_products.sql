select
    id as product_id, name as product_name, category, cast(price as numeric(12, 2)) as price,
    cast(updated_at as {{ dbt.type_timestamp() }}) as updated_at
from {{ ref('raw_products') }}
