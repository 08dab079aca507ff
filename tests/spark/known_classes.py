"""Names of Java classes that a process has found once: py4j has the JVM search all of Spark's jars for each use of one."""

from __future__ import annotations

from py4j.java_gateway import JavaClass, JavaPackage, JVMView


def remember_classes() -> None:
    """Have each view of a JVM keep the classes and packages found through it; a quarter of a driver's time went there."""
    _remember(JVMView)
    _remember(JavaPackage)


def _remember(cls: type) -> None:
    look_up = cls.__getattr__

    def remembering(self: object, name: str) -> object:
        found = look_up(self, name)
        if isinstance(found, JavaClass | JavaPackage):
            vars(self)[name] = found
        return found

    cls.__getattr__ = remembering
