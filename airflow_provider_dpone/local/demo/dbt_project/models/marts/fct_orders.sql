select order_id, customer_id, ordered_on, status, lines, units, amount, paid, refunded, first_shipped_on
from {{ ref('int_orders_enriched') }}
