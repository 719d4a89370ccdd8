select
    id as payment_id, order_id, method, cast(amount as numeric(12, 2)) as amount, cast(paid_on as date) as paid_on
from {{ ref('raw_payments') }}
