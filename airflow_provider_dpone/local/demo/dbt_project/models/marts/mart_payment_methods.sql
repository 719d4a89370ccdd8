select method, count(*) as payments, sum(amount) as amount
from {{ ref('fct_payments') }}
group by method
