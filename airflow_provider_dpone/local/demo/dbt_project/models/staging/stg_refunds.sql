select
    id as refund_id, order_id, cast(amount as numeric(12, 2)) as amount, cast(refunded_on as date) as refunded_on
from {{ ref('raw_refunds') }}
