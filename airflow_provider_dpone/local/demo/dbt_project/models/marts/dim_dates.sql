select distinct ordered_on as day
from {{ ref('stg_orders') }}
