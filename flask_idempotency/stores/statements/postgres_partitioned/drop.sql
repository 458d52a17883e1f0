-- Delete everything that expired on one day.
DROP TABLE IF EXISTS {partition}
