"""Files in and out: configurations, tables of data, results folders, XDMF for ParaView."""
