"""Worlds about devices beyond what the generator makes: pools of several nodes, partitions, shares
with consumed capacity, constraints, incomplete pools, alternatives, extended resources of several
containers. For comparing with the oracle; ``worlds(seed, count)`` gives lines of JSON.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

DRIVERS = ("gpu.example.com", "nic.example.com")
MODELS = ("a100", "h100", "l4")
Json = dict[str, Any]


def worlds(seed: int, count: int, *, admin: bool = False) -> Iterator[bytes]:
    for number in range(count):
        name = f"devices-{seed}-{number}"
        world = World(random.Random(seed * 1000 + number), name, admin=admin)
        yield json.dumps(world.made()).encode() + b"\n"


class World:
    def __init__(self, rng: random.Random, name: str, *, admin: bool) -> None:
        self.rng = rng
        self.name = name
        self.admin = admin
        """Whether requests may ask for admin access, which the oracle cannot normalise."""
        self.objects: list[Json] = []
        self.pending: list[str] = []
        self.devices: list[tuple[str, str, str, str, bool]] = []
        """(driver, pool, device, node or "", shared)."""

    def made(self) -> Json:
        rng = self.rng
        nodes = [f"node-{i}" for i in range(rng.randint(2, 5))]
        for i, node in enumerate(nodes):
            self.add("Node", "v1", node, labels={"zone": "ab"[i % 2]}, status={
                "allocatable": {"cpu": "16", "memory": "64Gi", "pods": "50",
                                **({"example.com/gpu": "2"} if rng.random() < 0.3 else {})},
            })  # fmt: skip
        for node in nodes:
            for driver in DRIVERS:
                if rng.random() < 0.75:
                    self.pool(driver, f"{node}-pool", {"nodeName": node}, node)
        if rng.random() < 0.6:
            where = rng.choice(({"allNodes": True}, {"nodeSelector": zone("a")}))
            self.pool("net.example.com", "fabric", where, "")
        self.classes()
        claims = [self.claim(f"claim-{i}") for i in range(rng.randint(4, 8))]
        for i in range(rng.randint(4, 7)):
            self.pod(f"pod-{i}", claims)
        return {
            "id": self.name, "family": "devices", "seed": 1,
            "mode": "sequence" if rng.random() < 0.5 else "independent",
            "pending": self.pending, "objects": self.objects,
        }  # fmt: skip

    def add(self, kind: str, version: str, name: str, *, namespace: str = "", labels: Json | None
            = None, meta: Json | None = None, **parts: Any) -> None:  # fmt: skip
        metadata: Json = {"name": name, "uid": f"uid-{kind}-{name}", **(meta or {})}
        if namespace:
            metadata["namespace"] = namespace
        if labels:
            metadata["labels"] = labels
        self.objects.append({"apiVersion": version, "kind": kind, "metadata": metadata, **parts})

    def pool(self, driver: str, pool: str, where: Json, node: str) -> None:
        rng = self.rng
        kind = rng.choice(("plain", "plain", "shared", "partitions", "mixed nodes"))
        generation = rng.randint(1, 3)
        slices = [[self.device(driver, f"d{s}{i}", kind) for i in range(rng.randint(1, 4))]
                  for s in range(rng.randint(1, 2))]  # fmt: skip
        counters = kind == "partitions"
        total = len(slices) + counters + (rng.random() < 0.07)
        if kind == "mixed nodes":
            where = {"perDeviceNodeSelection": True}
            for devices in slices:
                for device in devices:
                    device.update(rng.choice(({"allNodes": True}, {"nodeName": "node-0"},
                                              {"nodeSelector": zone("b")})))  # fmt: skip
        spec = {"driver": driver, **where}
        for i, devices in enumerate(slices):
            of = {"name": pool, "generation": generation, "resourceSliceCount": total}
            self.slice(f"{driver[:3]}-{pool}-{i}", {**spec, "pool": of, "devices": devices})
            for device in devices:
                shared = bool(device.get("allowMultipleAllocations"))
                self.devices.append((driver, pool, device["name"], node, shared))
        if counters:
            of = {"name": pool, "generation": generation, "resourceSliceCount": total}
            sets = [{"name": "die", "counters": {"memory": {"value": "40Gi"},
                                                 "engines": {"value": "4"}}}]  # fmt: skip
            self.slice(f"{driver[:3]}-{pool}-c", {**spec, "pool": of, "sharedCounters": sets})
        if generation > 1 and rng.random() < 0.2:
            of = {"name": pool, "generation": generation - 1, "resourceSliceCount": 1}
            old = [self.device(driver, "old", "plain")]
            if kind == "mixed nodes":
                old[0]["allNodes"] = True
            self.slice(f"{driver[:3]}-{pool}-old", {**spec, "pool": of, "devices": old})

    def slice(self, name: str, spec: Json) -> None:
        self.add("ResourceSlice", "resource.k8s.io/v1", name, spec=spec)

    def device(self, driver: str, name: str, kind: str) -> Json:
        rng = self.rng
        found: Json = {
            "name": name,
            "attributes": {
                "model": {"string": rng.choice(MODELS)},
                "index": {"int": rng.randint(0, 3)},
                "version": {"version": rng.choice(("1.0.0", "1.2.0", "2.0.0-rc.1"))},
                "example.com/root": {"string": rng.choice("xy")},
            },
            "capacity": {"memory": {"value": rng.choice(("40Gi", "80Gi"))}},
        }
        if rng.random() < 0.2:
            del found["attributes"]["example.com/root"]
        if rng.random() < 0.15:
            effect = rng.choice(("NoSchedule", "NoExecute"))
            found["taints"] = [{"key": "broken", "value": "yes", "effect": effect}]
        if kind == "shared":
            found["allowMultipleAllocations"] = True
            policy = rng.choice((
                None,
                {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}},
                {"default": "2Gi", "validRange": {"min": "2Gi", "max": "16Gi"}},
                {"default": "10Gi", "validValues": ["10Gi", "20Gi", "40Gi"]},
            ))  # fmt: skip
            if policy is not None:
                found["capacity"]["memory"]["requestPolicy"] = policy
        if kind == "partitions":
            amount = rng.choice((1, 2, 4))
            found["consumesCounters"] = [{"counterSet": "die", "counters": {
                "memory": {"value": f"{amount * 10}Gi"}, "engines": {"value": str(amount)},
            }}]  # fmt: skip
        return found

    def classes(self) -> None:
        for driver in (*DRIVERS, "net.example.com"):
            expression = f'device.driver == "{driver}"'
            spec: Json = {"selectors": [{"cel": {"expression": expression}}]}
            if driver == "gpu.example.com" and self.rng.random() < 0.6:
                spec["extendedResourceName"] = "example.com/gpu"
            self.add("DeviceClass", "resource.k8s.io/v1", driver.split(".")[0], spec=spec)
        everything = {"selectors": [{"cel": {"expression": "true"}}]}
        self.add("DeviceClass", "resource.k8s.io/v1", "any", spec=everything)

    def form(self, name: str, *, exact: bool) -> Json:
        rng = self.rng
        found: Json = {"deviceClassName": rng.choice(("gpu", "gpu", "nic", "net", "any"))}
        if not exact:
            found["name"] = name
        if rng.random() < 0.2:
            found["allocationMode"] = "All"
        else:
            found.update({"allocationMode": "ExactCount", "count": rng.choice((1, 1, 2, 3))})
        if rng.random() < 0.5:
            found["selectors"] = [{"cel": {"expression": self.selector()}}]
        if rng.random() < 0.3:
            found["tolerations"] = [{"key": "broken", "operator": "Exists"}]
        if rng.random() < 0.3:
            found["capacity"] = {
                "requests": {"memory": rng.choice(("1Gi", "3500Mi", "15Gi", "41Gi"))}
            }
        if self.admin and exact and rng.random() < 0.1:
            found["adminAccess"] = True
        return found

    def selector(self) -> str:
        domain = 'device.attributes["gpu.example.com"]'
        return self.rng.choice((
            f"{domain}.index > 0",
            f'has({domain}.model) && {domain}.model in ["a100", "h100"]',
            f'{domain}.?index.orValue(0) < 2',
            'device.attributes["gpu.example.com"].version.isLessThan(semver("2.0.0"))',
            'device.capacity[device.driver].memory.compareTo(quantity("41Gi")) < 0',
            "device.allowMultipleAllocations",
            'device.attributes["example.com"].root == "x"',
        ))  # fmt: skip

    def claim(self, name: str) -> str:
        rng = self.rng
        requests: list[Json] = []
        for i in range(rng.choice((1, 1, 2, 3))):
            if rng.random() < 0.3:
                subs = [self.form(f"s{j}", exact=False) for j in range(rng.randint(1, 3))]
                requests.append({"name": f"r{i}", "firstAvailable": subs})
            else:
                requests.append({"name": f"r{i}", "exactly": self.form(f"r{i}", exact=True)})
        devices: Json = {"requests": requests}
        if rng.random() < 0.4:
            kind = rng.choice(("matchAttribute", "distinctAttribute"))
            constraint: Json = {kind: rng.choice(("gpu.example.com/model", "example.com/root"))}
            if rng.random() < 0.5:
                constraint["requests"] = ["r0"]
            devices["constraints"] = [constraint]
        status: Json = {}
        if self.devices and rng.random() < 0.35:
            status = self.allocation("r0")
        self.add("ResourceClaim", "resource.k8s.io/v1", name, namespace="default",
                 spec={"devices": devices}, **({"status": status} if status else {}))  # fmt: skip
        return name

    def allocation(self, request: str) -> Json:
        rng = self.rng
        found = rng.choice(self.devices)
        self.devices.remove(found)
        driver, pool, device, node, shared = found
        result: Json = {"request": request, "driver": driver, "pool": pool, "device": device}
        if shared:
            result["shareID"] = f"00000000-0000-0000-0000-{rng.randrange(10**12):012}"
            result["consumedCapacity"] = {"memory": rng.choice(("1Gi", "10Gi", "30Gi"))}
        allocation: Json = {"devices": {"results": [result]}}
        if node:
            field = {"key": "metadata.name", "operator": "In", "values": [node]}
            allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        status: Json = {"allocation": allocation}
        if rng.random() < 0.5:
            name = f"user-{rng.randrange(10**6)}"
            status["reservedFor"] = [{"resource": "pods", "name": name, "uid": name}]
        return status

    def pod(self, name: str, claims: list[str]) -> None:
        rng = self.rng
        uses = [{"name": f"c{i}", "resourceClaimName": claim}
                for i, claim in enumerate(rng.sample(claims, rng.choice((1, 1, 2))))]  # fmt: skip
        containers: list[Json] = [
            {"name": "main", "image": "a", "resources": {"requests": {"cpu": "1"}}}
        ]
        spec: Json = {"schedulerName": "default-scheduler", "containers": containers}
        if rng.random() < 0.3:
            self.extended(spec)
            uses = uses if rng.random() < 0.3 else []
        if uses:
            spec["resourceClaims"] = uses
        self.add("Pod", "v1", name, namespace="default", spec=spec)
        self.pending.append(f"default/{name}")

    def extended(self, spec: Json) -> None:
        rng = self.rng
        resource = rng.choice(("example.com/gpu", "deviceclass.resource.kubernetes.io/nic"))

        def container(name: str) -> Json:
            amount = str(rng.randint(0, 3))
            wants = {resource: amount}
            return {"name": name, "image": "a", "resources": {"requests": wants, "limits": wants}}

        spec["containers"] += [container(f"more-{i}") for i in range(rng.randint(1, 2))]
        init = [container(f"init-{i}") for i in range(rng.randint(0, 2))]
        for each in init:
            if rng.random() < 0.4:
                each["restartPolicy"] = "Always"
        if init:
            spec["initContainers"] = init


def zone(value: str) -> Json:
    expression = {"key": "zone", "operator": "In", "values": [value]}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
