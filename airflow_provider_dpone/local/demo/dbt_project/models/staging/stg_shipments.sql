select id as shipment_id, order_id, cast(shipped_on as date) as shipped_on
from {{ ref('raw_shipments') }}
