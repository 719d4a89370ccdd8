select id as customer_id, name as customer_name, country, cast(joined_on as date) as joined_on
from {{ ref('raw_customers') }}
