"""Beside other engines: what Java Hudi's writers and table services are about to do, and have done."""
