"""The jars of Hudi's own lock providers, pinned by content: what Java writers run, for tests against them."""

from __future__ import annotations

from tests.servers.fetched.maven import Jars

HUDI = Jars(
    "hudi",
    """
org.apache.hudi:hudi-client-common:1.2.1 7e0ea4b2341d25fe6dce9e592d288bb83ffe5874f2d802a03ddb2bbb639cf360
org.apache.hudi:hudi-common:1.2.1 56775ee4226b7302446e47306df329551ae85f5a728be773d23b26006a8401f1
org.apache.hudi:hudi-hive-sync:1.0.2 526fff64edc2fba933c0f191edbe8e6ecd472e50b8c8c2f075e9fc21d7a89200
org.apache.hudi:hudi-io:1.2.1 10fd1900b8e6504cbaa8e6008b7e359d602fb55e0cafcbe57261dc26a7458e70
""",
)
"""The providers for ZooKeeper and the Hive metastore; Curator, Hive and Hadoop are those of PySpark."""

HUDI_DYNAMODB = Jars(
    "hudi-dynamodb",
    """
software.amazon.awssdk:annotations:2.20.8 7a11a5d28997c20281d51987a2e3bc0b87dd5c7b00c786f62497268b8eeafff2
software.amazon.awssdk:apache-client:2.20.8 1c19345a44d4f4c06cc2abd9b878aed9dfd9041cca539ac7d18f9281446b7259
software.amazon.awssdk:auth:2.20.8 fef4d9c91216f8bca02507263ec8d5e0070a926c0d4b31cab25f1039831374bb
software.amazon.awssdk:aws-core:2.20.8 a2ac22223bf925eec2942def81a161400b2cdd4c81f44e566099cb545672cc8e
software.amazon.awssdk:aws-json-protocol:2.20.8 95e9be9695cd6ba23e031a9fb20f503a4e18fd4a0a472bbe10070220e21620b4
commons-logging:commons-logging:1.2 daddea1ea0be0f56978ab3006b8ac92834afeefbd9b7e4e6316fca57df0fa636
software.amazon.awssdk:dynamodb:2.20.8 0a754d5cdfec5e9198636bfbab4aff1d57ee4e1f0cd98ae51d2f6b2ea4d1e5ea
com.amazonaws:dynamodb-lock-client:1.2.0 d0732cf6f8cd6ebb050a69e63effcf5a365bb69ba194bcb5c32cc343b6f831ce
software.amazon.awssdk:endpoints-spi:2.20.8 54f9bc7d101e7b55be839086412151a2a194f9c15c62e8cc9d79949c9a3ffedf
software.amazon.eventstream:eventstream:1.0.1 0c37d8e696117f02c302191b8110b0d0eb20fa412fce34c3a269ec73c16ce822
software.amazon.awssdk:http-client-spi:2.20.8 2f0d74482f911f3d31e31dd210fc749d6ed1748558ca7570f6b1ad625326efff
org.apache.httpcomponents:httpclient:4.5.13 6fe9026a566c6a5001608cf3fc32196641f6c1e5e1986d1037ccdbd5f31ef743
org.apache.httpcomponents:httpcore:4.4.13 e06e89d40943245fcfa39ec537cdbfce3762aecde8f9c597780d2b00c2b43424
org.apache.hudi:hudi-aws:0.15.0 fb3bef775d90559976116552229c978243db01118be9571e0acea64f251e3db9
org.apache.hudi:hudi-client-common:0.15.0 760d45bac48b31c55f5a1cf0fa052795a3d27ee4be510698388398896f213454
org.apache.hudi:hudi-common:0.15.0 1f0e7b16c8857ffb77a39aac2093174eed4569718b4b4db4cfbfc4ad02415a37
org.apache.hudi:hudi-io:0.15.0 3345c90633787ffd6f9d26e7e2cde1d1bebbc4f1ed685332ab9facd3f9353d82
software.amazon.awssdk:json-utils:2.20.8 da7e352c8907e858b764b99bc4c252a5f561680c9c6b60d8ca3ca3c8bf87e6df
software.amazon.awssdk:metrics-spi:2.20.8 129a04fbc0ef17e8fdb38199c4aa03bb36cc8aeef91b7ff548af544eecd1091a
software.amazon.awssdk:profiles:2.20.8 2e8eba7d838425c0c5bc9a14ebd63603d95c0e221262dd0e1360037ac00713c5
software.amazon.awssdk:protocol-core:2.20.8 af47e318d2eaa731487b02d2f4328bf7e0597dd8f9e30e808c5a537a018d21a0
org.reactivestreams:reactive-streams:1.0.3 1dee0481072d19c929b623e155e14d2f6085dc011529a0a0dbefc84cf571d865
software.amazon.awssdk:regions:2.20.8 dc26798f5b5dbf82227dd63a9fd15cdb85bbb48c57b7a332200a2b0ecab793c1
software.amazon.awssdk:sdk-core:2.20.8 89b5eb4b4d763b6f6832f98106ef71504a31c7f3ea1f8e68eee999f1d8509f9d
org.slf4j:slf4j-api:1.7.30 cdba07964d1bb40a0761485c6b1e8c2f8fd9eb1d19c53928ac0d7f9510105c57
software.amazon.awssdk:third-party-jackson-core:2.20.8 84eabe282f1298095f00a12cd81262c0cd40d53910a381aa621c5e4288f33d69
software.amazon.awssdk:utils:2.20.8 b4e9e2d81ddc053b01d63335f73e3421579b8aabafdfe19132f336921d301c7f
""",
)
"""The provider for DynamoDB with all it needs. To be kept apart from PySpark's jars."""

HUDI_SPARK = Jars(
    "hudi-spark",
    """
org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0 cc79fba00822f3a6c3a860df99375c2e3d4a034d037dbf4213a4966a706a7676
""",
)
"""Java Hudi for Spark 3.5, the newest Spark that it is published for on Maven Central; 80 MB."""

HUDI_SPARK_1_0 = Jars(
    "hudi-spark-1.0",
    """
org.apache.hudi:hudi-spark3.5-bundle_2.12:1.0.2 2c2ab65a11e91265e4b7346f954448c46df52d66fb72f52dad83767b621deae8
""",
)
"""The release that writes table version 8, as EMR 7 and Glue 5.1 have it; 110 MB."""
