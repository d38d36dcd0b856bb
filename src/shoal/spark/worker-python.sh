#!/bin/sh
# Starts a Python process of Spark's. Spark puts its own pyspark.zip in front of PYTHONPATH, and
# Python compiles what it takes from there in every process anew: half a second. The installed
# package is the same code, compiled once; session() uses this script only where both are one.
# A jar without any Python in it stands there too, whose list of 6,000 files is read three times.
rest=
IFS=:
for part in $PYTHONPATH; do
    case $part in
    */pyspark/python/lib/pyspark.zip | */pyspark/python/lib/py4j-*-src.zip) ;;
    */pyspark/jars/spark-core_*.jar) ;;
    *) rest="${rest:+$rest:}$part" ;;
    esac
done
PYTHONPATH=$rest exec "$SHOAL_SPARK_PYTHON" "$@"
