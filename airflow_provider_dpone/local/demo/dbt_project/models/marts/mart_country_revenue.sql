select country, count(*) as customers, sum(revenue) as revenue
from {{ ref('mart_customer_value') }}
group by country
