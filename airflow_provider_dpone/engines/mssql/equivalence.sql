-- One class number per name, in the order given: equal numbers are one relation to this database's catalog, under its
-- own collation, trailing blanks and all.
SELECT w.i,
       DENSE_RANK() OVER (ORDER BY w.s COLLATE CATALOG_DEFAULT, w.r COLLATE CATALOG_DEFAULT) AS class
FROM OPENJSON(?) WITH (i int '$.i', s nvarchar(128) '$.s', r nvarchar(128) '$.r') AS w
ORDER BY w.i;
