{# Everything lives in the one managed schema, stored test failures included. #}
{% macro generate_schema_name(custom_schema_name, node) -%}
    {{ target.schema }}
{%- endmacro %}
