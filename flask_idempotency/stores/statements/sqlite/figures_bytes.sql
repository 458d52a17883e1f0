-- Say how many bytes the file has.
SELECT page_count * page_size
  FROM pragma_page_count(), pragma_page_size()
