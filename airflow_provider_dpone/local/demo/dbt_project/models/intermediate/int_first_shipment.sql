select order_id, min(shipped_on) as first_shipped_on
from {{ ref('stg_shipments') }}
group by order_id
