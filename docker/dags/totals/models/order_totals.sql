select
    cast(id % 10 as int) as bucket,
    count_big(*) as orders,
    cast(sum(amount) as decimal(20, 2)) as amount
from {{ source('mart', 'orders') }}
group by id % 10
