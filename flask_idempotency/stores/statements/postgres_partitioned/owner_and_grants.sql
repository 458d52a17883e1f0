-- Give the statements by which a new table gets the owner of another, and what is granted on it.
SELECT format('ALTER TABLE {target} OWNER TO %I', pg_get_userbyid(relowner))
  FROM pg_class
 WHERE oid = to_regclass('{source}')
   AND relowner <> (SELECT relowner FROM pg_class WHERE oid = to_regclass('{target}'))
 UNION ALL
SELECT format('GRANT %s ON {target} TO %s', privilege_type,
              CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END)
  FROM pg_class, aclexplode(relacl)
 WHERE oid = to_regclass('{source}') AND grantee <> relowner
