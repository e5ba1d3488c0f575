// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

// wholePod has every field that says where and as what a pod runs. It is bound to the virtual node by whoever makes it, which
// lets it name a scheduler that does not exist.
const wholePod = `
apiVersion: v1
kind: Pod
metadata: {name: whole, labels: {app: x, tier: back}, annotations: {note: one}}
spec:
  nodeName: liqo-milan
  schedulerName: nobody
  nodeSelector: {liqo.io/type: virtual-node}
  affinity:
    nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: liqo.io/type, operator: Exists}]}]}}
    podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone, labelSelector: {matchLabels: {app: x}}}}]}
  priorityClassName: CLASS
  runtimeClassName: CLASS
  serviceAccountName: robot
  os: {name: linux}
  activeDeadlineSeconds: 3600
  dnsPolicy: None
  dnsConfig: {nameservers: [192.0.2.53], searches: [example.org], options: [{name: ndots, value: "3"}]}
  enableServiceLinks: false
  hostAliases: [{ip: 192.0.2.9, hostnames: [nine]}]
  hostname: host
  subdomain: sub
  setHostnameAsFQDN: false
  imagePullSecrets: [{name: pull}]
  readinessGates: [{conditionType: example.org/gate}]
  restartPolicy: OnFailure
  securityContext: {fsGroup: 17, runAsUser: 0}
  shareProcessNamespace: true
  terminationGracePeriodSeconds: 1
  topologySpreadConstraints: [{maxSkew: 2, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: x}}}]
  tolerations: [{key: mine, operator: Exists, effect: NoSchedule}]
  volumes:
  - {name: empty, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: config, configMap: {name: config}}
  - {name: root, configMap: {name: kube-root-ca.crt}}
  - {name: secret, secret: {secretName: secret}}
  - {name: podinfo, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
  initContainers:
  - {name: first, image: "playground.local/tools:1", imagePullPolicy: Never, command: ["true"], env: [{name: A, value: one}]}
  containers:
  - name: main
    image: playground.local/tools:1
    imagePullPolicy: Never
    command: [sh, -c, "trap 'exit 0' TERM; sleep infinity & wait"]
    workingDir: /tmp
    ports: [{name: http, containerPort: 80}]
    env:
    - {name: ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
    - {name: FROM_CONFIG, valueFrom: {configMapKeyRef: {name: config, key: k}}}
    envFrom: [{secretRef: {name: secret, optional: true}}]
    resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}
    livenessProbe: {exec: {command: ["true"]}, periodSeconds: 5}
    readinessProbe: {exec: {command: ["true"]}, periodSeconds: 5}
    lifecycle: {preStop: {exec: {command: ["true"]}}}
    securityContext: {allowPrivilegeEscalation: false}
    volumeMounts: [{name: empty, mountPath: /empty}, {name: config, mountPath: /config}, {name: root, mountPath: /root-ca}, {name: secret, mountPath: /secret}, {name: podinfo, mountPath: /podinfo}]
`

// wholeThere is what it is in milan.
const wholeThere = `
metadata:
  labels: {app: x, tier: back, liqo.io/managed-by: shadowpod, liqo.io/shadowPod: null, virtualkubelet.liqo.io/origin: ROMEID, virtualkubelet.liqo.io/destination: MILANID}
  annotations: {note: one, kubectl.kubernetes.io/last-applied-configuration: null}
spec:
  nodeName: ~milan-.*
  schedulerName: default-scheduler
  nodeSelector: null
  affinity: null
  priority: 0
  priorityClassName: null
  preemptionPolicy: PreemptLowerPriority
  runtimeClassName: null
  overhead: null
  serviceAccountName: default
  os: null
  automountServiceAccountToken: false
  hostNetwork: null
  hostPID: null
  hostIPC: null
  activeDeadlineSeconds: 3600
  dnsPolicy: None
  dnsConfig: {nameservers: [192.0.2.53], searches: [example.org], options: [{name: ndots, value: "3"}]}
  enableServiceLinks: false
  hostAliases: [{ip: 192.0.2.9, hostnames: [nine]}, {ip: '~[0-9.]+', hostnames: [kubernetes.default, kubernetes.default.svc]}]
  hostname: host
  subdomain: sub
  setHostnameAsFQDN: false
  imagePullSecrets: [{name: pull}]
  readinessGates: [{conditionType: example.org/gate}]
  restartPolicy: OnFailure
  securityContext: {fsGroup: 17, runAsUser: 0}
  shareProcessNamespace: true
  terminationGracePeriodSeconds: 1
  topologySpreadConstraints: [{maxSkew: 2, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: x}}}]
  volumes:
  - {name: empty, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: config, configMap: {name: config}}
  - {name: root, configMap: {name: kube-root-ca.crt.ROMESHORT}}
  - {name: secret, secret: {secretName: secret}}
  - {name: podinfo, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
  - name: ~kube-api-access-.*
    projected:
      sources:
      - {serviceAccountToken: null, secret: {name: whole-token, items: [{key: '~kube-api-access-.*-[0-9a-f]{6}', path: token}]}}
      - {configMap: {name: kube-root-ca.crt.ROMESHORT, items: [{key: ca.crt, path: ca.crt}]}}
      - {downwardAPI: null, secret: {name: whole-token, items: [{key: namespace, path: namespace}]}}
  initContainers:
  - name: first
    command: ["true"]
    env: [{name: A, value: one}, ENVIRONMENT]
  containers:
  - name: main
    image: playground.local/tools:1
    imagePullPolicy: Never
    workingDir: /tmp
    ports: [{name: http, containerPort: 80, protocol: TCP, hostPort: null}]
    env:
    - {name: ACCOUNT, value: robot, valueFrom: null}
    - {name: FROM_CONFIG, valueFrom: {configMapKeyRef: {name: config, key: k}}}
    - ENVIRONMENT
    envFrom: [{secretRef: {name: secret, optional: true}}]
    resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}
    livenessProbe: {exec: {command: ["true"]}, periodSeconds: 5}
    readinessProbe: {exec: {command: ["true"]}, periodSeconds: 5}
    lifecycle: {preStop: {exec: {command: ["true"]}}}
    securityContext: {allowPrivilegeEscalation: false}
`

// environment tells containers where the API server of rome is.
var environment = []string{
	"{name: KUBERNETES_SERVICE_HOST, value: kubernetes.default}", `{name: KUBERNETES_SERVICE_PORT, value: "443"}`,
	`{name: KUBERNETES_PORT, value: "tcp://kubernetes.default:443"}`, `{name: KUBERNETES_PORT_443_TCP, value: "tcp://kubernetes.default:443"}`,
	"{name: KUBERNETES_PORT_443_TCP_PROTO, value: tcp}", "{name: KUBERNETES_PORT_443_TCP_ADDR, value: kubernetes.default}", `{name: KUBERNETES_PORT_443_TCP_PORT, value: "443"}`,
}

func podRow(t *testing.T) {
	s := offloaded(t)
	s.kubectl(t, "create", "serviceaccount", "robot")
	s.kubectl(t, "create", "configmap", "config", "--from-literal=k=v")
	s.kubectl(t, "create", "secret", "generic", "secret", "--from-literal=PASSWORD=word")
	classes := "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: CLASS}, value: 7, preemptionPolicy: Never}\n---\n" +
		"{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: CLASS}, handler: nobody, overhead: {podFixed: {memory: 5Mi}}}\n"
	rome.Apply(t, strings.ReplaceAll(classes, "CLASS", s.name))
	t.Cleanup(func() { rome.Kubectl(t, "delete", "priorityclass/"+s.name, "runtimeclass/"+s.name) })

	s.apply(t, strings.ReplaceAll(wholePod, "CLASS", s.name))
	// The lists of variables have the same end in each container.
	want := strings.NewReplacer("    - ENVIRONMENT", "    - "+strings.Join(environment, "\n    - "), "ENVIRONMENT", strings.Join(environment, ", ")).Replace(wholeThere)
	pod := s.becomes(t, podKind, "whole", want)
	tolerations := inJSON(env.At(pod.Object, "spec.tolerations"))
	if !strings.Contains(tolerations, `"mine"`) || strings.Contains(tolerations, "virtual-node.liqo.io/not-allowed") {
		t.Errorf("tolerations are %s", tolerations)
	}
	s.becomes(t, shadowPodKind, "whole", "{metadata: {labels: {liqo.io/shadowPod: null, virtualkubelet.liqo.io/origin: ROMEID}}, spec: {pod: {nodeName: null, schedulerName: null, serviceAccountName: null}}}")
	s.shows(t, podKind, "whole", `
metadata: {labels: {liqo.io/shadowPod: "true", app: x, tier: back}}
status:
  phase: Running
  podIP: '~[0-9.]+'
  hostIP: '~[0-9.]+'
  startTime: '*'
  initContainerStatuses: [{name: first, state: {terminated: {exitCode: 0}}}]
  containerStatuses: [{name: main, ready: true, restartCount: 0, state: {running: {}}}]
`)
	if said := s.kubectl(t, "exec", "whole", "--", "sh", "-c", "cat /config/k; echo; cat /secret/PASSWORD; echo; echo $PASSWORD $FROM_CONFIG; grep tier /podinfo/labels"); said != "v\nword\nword v\ntier=\"back\"" {
		t.Errorf("in the pod: %s", said)
	}
	s.becomes(t, shadowPodKind, "whole", "{status: {phase: Running}}")
	podLife(t, s)
	strangePod(t, s)
	affinityPresets(t, s)
}

// addresses: what rome shows is where the pod is reached from rome.
func addresses(t *testing.T, s space, name string) {
	t.Helper()
	here, there := s.here(t, podKind, name), s.there(t, podKind, name)
	view, err := rome.See(milan)
	if err != nil {
		t.Fatal(err)
	}
	var theirs env.Pod
	all, err := milan.Pods(s.twin, map[string]string{"app": "x"})
	for _, pod := range all {
		if pod.Name == name {
			theirs = pod
		}
	}
	if theirs.Name == "" {
		t.Fatalf("pod %s is not Ready in milan (%v)", name, err)
	}
	want, err := view.Pod(theirs.Address)
	if err != nil {
		t.Fatal(err)
	}
	if is := env.At(here.Object, "status.podIP"); is != want.String() {
		t.Errorf("pod %s has the address %v in rome, and %v in milan: want %s", name, is, env.At(there.Object, "status.podIP"), want)
	}
}

const plainPod = `
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: x, version: one}, annotations: {note: one}}
spec:
  nodeSelector: {liqo.io/type: virtual-node}
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never}]
`

// podLife changes and deletes a pod on both sides.
func podLife(t *testing.T, s space) {
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "lively"))
	s.running(t, "lively")
	addresses(t, s, "lively")
	s.kubectl(t, "label", "pod", "lively", "version=two", "--overwrite")
	s.kubectl(t, "annotate", "pod", "lively", "note=two", "--overwrite")
	s.kubectl(t, "label", "pod", "lively", "fresh=yes")
	for _, kind := range []string{shadowPodKind, podKind} {
		s.becomes(t, kind, "lively", "metadata: {labels: {version: two, fresh: 'yes'}, annotations: {note: two}}")
	}
	s.kubectl(t, "label", "pod", "lively", "fresh-")
	s.becomes(t, podKind, "lively", "metadata: {labels: {version: two, fresh: null}}")
	s.milan(t, "label", "shadowpod", "lively", "version=edited", "--overwrite")
	for _, kind := range []string{shadowPodKind, podKind} {
		s.becomes(t, kind, "lively", "metadata: {labels: {version: two}}")
	}

	anew := func(how ...string) {
		t.Helper()
		before := s.there(t, podKind, "lively")
		restarts := env.At(s.here(t, podKind, "lively").Object, "status.containerStatuses.0.restartCount")
		began := time.Now()
		s.milan(t, append(how, "--wait=false")...)
		env.Eventually(t, started, "lively runs again in milan", func() (string, bool) {
			now := s.there(t, podKind, "lively")
			return "", now != nil && now.GetUID() != before.GetUID() && env.At(now.Object, "status.phase") == "Running"
		})
		clusters.Measure("remote pod deleted to Running again: "+strings.Join(how, " "), "%.1f s", time.Since(began).Seconds())
		count, _ := restarts.(int64)
		s.shows(t, podKind, "lively", fmt.Sprintf("status: {phase: Running, containerStatuses: [{ready: true, restartCount: %d}]}", count+1))
	}
	local := s.here(t, podKind, "lively").GetUID()
	anew("delete", "pod", "lively")
	anew("delete", "shadowpod", "lively")
	if now := s.here(t, podKind, "lively"); now.GetUID() != local {
		t.Error("the pod in rome is another one")
	}
	s.kubectl(t, "delete", "pod", "lively", "--timeout=30s")
	for _, kind := range []string{shadowPodKind, podKind} {
		if found := s.there(t, kind, "lively"); found != nil {
			t.Errorf("the pod in rome is gone and the %s in milan is not: %s", kind, inJSON(found.Object["metadata"]))
		}
	}
}

// strangePod is a pod of milan's own, of the name that a pod of rome wants.
func strangePod(t *testing.T, s space) {
	theirs := "{apiVersion: v1, kind: Pod, metadata: {name: strange}, spec: {containers: [{name: theirs, image: 'playground.local/tools:1', imagePullPolicy: Never}]}}"
	if said := milan.TryKubectl(theirs, "-n", s.twin, "apply", "-f", "-"); said.Code != 0 {
		t.Fatal(said)
	}
	s.milan(t, "wait", "--for=condition=Ready", "pod/strange", "--timeout=60s")
	before := s.there(t, podKind, "strange")
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "strange"))
	s.told(t, "Pod", "strange", "NameTaken", "not touched")
	s.kubectl(t, "delete", "pod", "strange", "--timeout=30s")
	after := s.there(t, podKind, "strange")
	if after == nil || after.GetUID() != before.GetUID() || after.GetResourceVersion() != before.GetResourceVersion() {
		t.Fatalf("the pod of milan was changed or deleted: %s, then %s", inJSON(before), inJSON(after))
	}
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "strange"))
	s.milan(t, "delete", "pod", "strange")
	s.running(t, "strange")
}

// affinityPresets: how pods are to be spread over the nodes of milan.
func affinityPresets(t *testing.T, s space) {
	preset := func(name, annotations, affinity string) {
		s.apply(t, "{apiVersion: v1, kind: Pod, metadata: {name: "+name+", labels: {app: x, pod-template-hash: h}, annotations: {"+annotations+"}}, spec: {nodeSelector: {liqo.io/type: virtual-node}, "+
			affinity+"terminationGracePeriodSeconds: 1, containers: [{name: main, image: 'playground.local/tools:1', imagePullPolicy: Never}]}}")
	}
	preset("soft", "liqo.io/anti-affinity-preset: soft", "")
	preset("hard", "liqo.io/anti-affinity-preset: hard, liqo.io/anti-affinity-labels: 'pod-template-hash'", "")
	verbatim := "podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 7, podAffinityTerm: {topologyKey: zone, labelSelector: {matchLabels: {app: z}}}}]}"
	preset("propagated", "liqo.io/anti-affinity-preset: propagate",
		"affinity: {"+verbatim+", podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone, labelSelector: {matchLabels: {app: z}}}}]}}, ")
	s.becomes(t, podKind, "soft", `spec: {affinity: {nodeAffinity: null, podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: null, preferredDuringSchedulingIgnoredDuringExecution: [
  {weight: 1, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: x, pod-template-hash: null}}}}]}}}`)
	s.becomes(t, podKind, "hard", `spec: {affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: null, requiredDuringSchedulingIgnoredDuringExecution: [
  {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: null, pod-template-hash: h}}}]}}}`)
	s.becomes(t, podKind, "propagated", "spec: {affinity: {podAffinity: null, nodeAffinity: null, "+verbatim+"}}")
}

// mutablePods: what Kubernetes lets a running pod change crosses, without a new pod.
func mutablePods(t *testing.T) {
	s := offloaded(t, "--pod-offloading-strategy", "Remote")
	s.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: changing}
spec:
  terminationGracePeriodSeconds: 1
  activeDeadlineSeconds: 3600
  containers: [{name: main, image: "liqo.io/traffic:dev", imagePullPolicy: Never, args: [serve]}]
`)
	s.running(t, "changing")
	uid := s.there(t, podKind, "changing").GetUID()

	s.kubectl(t, "set", "image", "pod/changing", "main=playground.local/demo:1")
	s.becomes(t, podKind, "changing", "{spec: {containers: [{image: 'playground.local/demo:1'}]}, status: {containerStatuses: [{image: 'playground.local/demo:1', ready: true}]}}")
	s.shows(t, podKind, "changing", "status: {containerStatuses: [{image: 'playground.local/demo:1', ready: true, restartCount: 1}]}")

	s.kubectl(t, "patch", "pod", "changing", "--type=json", "-p", `[{"op":"add","path":"/spec/tolerations/-","value":{"key":"late","operator":"Exists","effect":"NoSchedule"}}]`)
	env.Eventually(t, soon, "the toleration has crossed", func() (string, bool) {
		is, _ := env.At(s.there(t, podKind, "changing").Object, "spec.tolerations").([]any)
		return inJSON(is), slices.ContainsFunc(is, func(one any) bool { return strings.Contains(inJSON(one), `"late"`) })
	})
	s.kubectl(t, "patch", "pod", "changing", "-p", `{"spec":{"activeDeadlineSeconds":1800}}`)
	s.becomes(t, podKind, "changing", "{spec: {activeDeadlineSeconds: 1800}}")

	s.kubectl(t, "debug", "changing", "--image="+env.ToolsImage, "-c", "look", "--target=main", "--image-pull-policy=Never", "--", "sleep", "600")
	s.becomes(t, podKind, "changing", "{spec: {ephemeralContainers: [{name: look, targetContainerName: main}]}, status: {ephemeralContainerStatuses: [{name: look, state: {running: {}}}]}}")
	s.shows(t, podKind, "changing", "status: {ephemeralContainerStatuses: [{name: look, state: {running: {}}}]}")

	if now := s.there(t, podKind, "changing").GetUID(); now != uid {
		t.Errorf("pod %s in milan has become %s", uid, now)
	}
	if said := rome.TryKubectl("", "-n", s.name, "patch", "pod", "changing", "-p", `{"spec":{"hostname":"other"}}`); said.Code == 0 {
		t.Errorf("a field that cannot change was changed: %s", said)
	}
	s.kubectl(t, "patch", "pod", "changing", "-p", `{"spec":{"activeDeadlineSeconds":1}}`)
	s.shows(t, podKind, "changing", "status: {phase: Failed, reason: DeadlineExceeded}")
}
