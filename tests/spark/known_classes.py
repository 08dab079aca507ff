"""Names of Java classes that a process has found once: py4j has the JVM search all of Spark's jars for each use of one."""

from __future__ import annotations

from py4j.java_gateway import JavaClass, JVMView


def remember_classes() -> None:
    """Have each view of a JVM keep the classes that are found through it; a quarter of a driver's time went there."""
    look_up = JVMView.__getattr__

    def remembering(view: JVMView, name: str) -> object:
        found = look_up(view, name)
        if isinstance(found, JavaClass):
            vars(view)[name] = found
        return found

    JVMView.__getattr__ = remembering
