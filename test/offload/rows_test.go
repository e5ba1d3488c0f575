// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"encoding/base64"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
)

// rows are the kinds that cross: what of each field arrives, and what becomes of it when either side changes it.
func rows(t *testing.T) {
	for name, row := range map[string]func(*testing.T){
		"Pod": podRow, "mutable fields of pods": mutablePods, "ServiceAccount": serviceAccountRow,
		"Service": serviceRow, "EndpointSlice": endpointSliceRow, "Ingress": ingressRow, "ConfigMap": configMapRow, "Secret": secretRow,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row(t)
		})
	}
}

// reflectedObject is one object whose life is gone through.
type reflectedObject struct {
	kind, name string
	// manifest has %s where a label is to change, with its value.
	manifest string
	// remoteName, if it is another one.
	remoteName string
	// shadow is the kind there, if it is another one.
	shadow string
}

// life changes and deletes an object on both sides: what is here is what is there, whoever does what.
func life(t *testing.T, s space, o reflectedObject) {
	t.Helper()
	if o.remoteName == "" {
		o.remoteName = o.name
	}
	if o.shadow == "" {
		o.shadow = o.kind
	}
	version := func(v string) string { return strings.ReplaceAll(o.manifest, "%s", v) }
	labelled := func(v string) string {
		return `metadata: {labels: {version: ` + v + `, virtualkubelet.liqo.io/origin: ROMEID, virtualkubelet.liqo.io/destination: MILANID}, annotations: {note: ` + v + `}}`
	}
	resource := strings.ToLower(o.kind[strings.LastIndex(o.kind, "/")+1:])
	thereResource := strings.ToLower(o.shadow[strings.LastIndex(o.shadow, "/")+1:])

	s.apply(t, version("one"))
	s.becomes(t, o.shadow, o.remoteName, labelled("one"))
	s.apply(t, version("two"))
	s.becomes(t, o.shadow, o.remoteName, labelled("two"))

	s.milan(t, "label", thereResource, o.remoteName, "version=edited", "--overwrite")
	s.milan(t, "annotate", thereResource, o.remoteName, "note=edited", "--overwrite")
	before := s.becomes(t, o.shadow, o.remoteName, labelled("two"))

	s.milan(t, "delete", thereResource, o.remoteName)
	env.Eventually(t, soon, o.remoteName+" comes back", func() (string, bool) {
		now := s.there(t, o.shadow, o.remoteName)
		return "", now != nil && now.GetUID() != before.GetUID()
	})
	s.becomes(t, o.shadow, o.remoteName, labelled("two"))

	s.kubectl(t, "annotate", resource, o.name, "liqo.io/skip-reflection=whatever")
	vanishes(t, milan, o.shadow, s.twin, o.remoteName)
	s.kubectl(t, "annotate", resource, o.name, "liqo.io/skip-reflection-")
	s.becomes(t, o.shadow, o.remoteName, labelled("two"))

	s.kubectl(t, "delete", resource, o.name)
	vanishes(t, milan, o.shadow, s.twin, o.remoteName)
}

// stranger has an object of the same name in the twin first: it is left as it is, and what is here says so.
func stranger(t *testing.T, s space, o reflectedObject) {
	t.Helper()
	resource := strings.ToLower(o.kind[strings.LastIndex(o.kind, "/")+1:])
	mine := strings.ReplaceAll(o.manifest, "%s", "mine")
	if said := milan.TryKubectl(mine, "-n", s.twin, "apply", "-f", "-"); said.Code != 0 {
		t.Fatal(said)
	}
	before := s.there(t, o.kind, o.name)
	s.apply(t, strings.ReplaceAll(o.manifest, "%s", "one"))
	s.told(t, o.kind[strings.LastIndex(o.kind, "/")+1:], o.name, "FailedReflection", "not managed")
	s.kubectl(t, "label", resource, o.name, "version=two", "--overwrite")
	s.kubectl(t, "delete", resource, o.name)
	// What comes after the deletion of ours comes when that has been looked at.
	s.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: after-"+o.name+"}}")
	s.becomes(t, configMapKind, "after-"+o.name, "{}")
	after := s.there(t, o.kind, o.name)
	if after == nil || after.GetUID() != before.GetUID() || after.GetResourceVersion() != before.GetResourceVersion() {
		t.Fatalf("%s of milan was changed or deleted: %s, then %s", o.name, inJSON(before), inJSON(after))
	}
	s.apply(t, strings.ReplaceAll(o.manifest, "%s", "one"))
	s.milan(t, "delete", resource, o.name)
	s.becomes(t, o.kind, o.name, "metadata: {labels: {version: one, virtualkubelet.liqo.io/origin: ROMEID}}")
}

// meta begins each manifest of an object that lives.
const meta = `labels: {version: "%s", app: x}, annotations: {note: "%s"}`

func configMapRow(t *testing.T) {
	s := offloaded(t)
	s.becomes(t, configMapKind, "kube-root-ca.crt."+identity(t, rome)[:5], "{data: {ca.crt: '~(?s)-----BEGIN CERTIFICATE-----.*'}}")
	s.apply(t, `
apiVersion: v1
kind: ConfigMap
metadata: {name: whole, labels: {a: b}, annotations: {c: d}}
data: {text: hello, more: "1"}
binaryData: {bytes: AAEC}
immutable: true
`)
	s.becomes(t, configMapKind, "whole", `
metadata: {labels: {a: b, virtualkubelet.liqo.io/origin: ROMEID, virtualkubelet.liqo.io/destination: MILANID}, annotations: {c: d, kubectl.kubernetes.io/last-applied-configuration: null}}
data: {text: hello, more: "1"}
binaryData: {bytes: AAEC}
immutable: true
`)
	s.kubectl(t, "delete", "configmap", "whole")
	s.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: whole}, data: {text: other}, immutable: true}")
	s.becomes(t, configMapKind, "whole", "{data: {text: other, more: null}, binaryData: null}")

	s.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: skipped, annotations: {liqo.io/skip-reflection: ''}}}")
	o := reflectedObject{kind: configMapKind, name: "lively", manifest: "{apiVersion: v1, kind: ConfigMap, metadata: {name: lively, " + meta + "}, data: {v: '%s'}}"}
	life(t, s, o)
	if found := s.there(t, configMapKind, "skipped"); found != nil {
		t.Errorf("a ConfigMap that was skipped from its beginning has crossed: %s", inJSON(found))
	}
	o.name, o.manifest = "strange", strings.Replace(o.manifest, "lively", "strange", 1)
	stranger(t, s, o)

	// What is inside is put right, too, and keys that somebody adds are none of ours.
	s.milan(t, "patch", "configmap", "strange", "--type=merge", "-p", `{"data":{"v":"edited"}}`)
	s.becomes(t, configMapKind, "strange", "{data: {v: one}}")
}

func secretRow(t *testing.T) {
	s := offloaded(t)
	pull := base64.StdEncoding.EncodeToString([]byte(`{"auths":{}}`))
	s.apply(t, `
apiVersion: v1
kind: Secret
metadata: {name: whole, labels: {a: b}, annotations: {c: d}}
stringData: {password: secret}
immutable: true
---
apiVersion: v1
kind: Secret
metadata: {name: pull}
type: kubernetes.io/dockerconfigjson
data: {.dockerconfigjson: `+pull+`}
---
apiVersion: v1
kind: Secret
metadata: {name: sh.helm.release.v1.x.v1}
type: helm.sh/release.v1
data: {release: AAEC}
---
apiVersion: v1
kind: Secret
metadata: {name: account, annotations: {kubernetes.io/service-account.name: default}}
type: kubernetes.io/service-account-token
`)
	s.becomes(t, secretKind, "whole", `
metadata: {labels: {a: b, virtualkubelet.liqo.io/origin: ROMEID, virtualkubelet.liqo.io/destination: MILANID}, annotations: {c: d, kubectl.kubernetes.io/last-applied-configuration: null}}
data: {password: c2VjcmV0}
type: Opaque
immutable: true
`)
	s.becomes(t, secretKind, "pull", "{type: kubernetes.io/dockerconfigjson, data: {.dockerconfigjson: "+pull+"}}")
	s.becomes(t, secretKind, "sh.helm.release.v1.x.v1", "{type: helm.sh/release.v1, data: {release: AAEC}}")
	s.kubectl(t, "delete", "secret", "pull")
	vanishes(t, milan, secretKind, s.twin, "pull")
	s.apply(t, "{apiVersion: v1, kind: Secret, metadata: {name: pull}, data: {other: AAEC}}")
	s.becomes(t, secretKind, "pull", "{type: Opaque, data: {other: AAEC, .dockerconfigjson: null}}")

	o := reflectedObject{kind: secretKind, name: "lively", manifest: "{apiVersion: v1, kind: Secret, metadata: {name: lively, " + meta + "}, stringData: {v: '%s'}}"}
	life(t, s, o)
	if found := s.there(t, secretKind, "account"); found != nil {
		t.Errorf("the token of a ServiceAccount has crossed as it is, of type %v", found.Object["type"])
	}
	o.name, o.manifest = "strange", strings.Replace(o.manifest, "lively", "strange", 1)
	stranger(t, s, o)
}

func ingressRow(t *testing.T) {
	s := offloaded(t)
	s.apply(t, `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: whole, labels: {a: b}, annotations: {c: d}}
spec:
  ingressClassName: local-class
  defaultBackend: {service: {name: other, port: {number: 80}}}
  tls: [{hosts: [example.org], secretName: certificate}]
  rules:
  - host: example.org
    http: {paths: [{path: /a, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}]}
  - http: {paths: [{path: /r, pathType: Exact, backend: {resource: {apiGroup: example.org, kind: Bucket, name: b}}}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: older, annotations: {kubernetes.io/ingress.class: local-class, c: d}}
spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}
`)
	s.becomes(t, ingressKind, "whole", `
metadata: {labels: {a: b, virtualkubelet.liqo.io/origin: ROMEID, virtualkubelet.liqo.io/destination: MILANID}, annotations: {c: d}}
spec:
  ingressClassName: null
  defaultBackend: {service: {name: other, port: {number: 80}}}
  tls: [{hosts: [example.org], secretName: certificate}]
  rules:
  - host: example.org
    http: {paths: [{path: /a, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}]}
  - http: {paths: [{path: /r, pathType: Exact, backend: {resource: {apiGroup: example.org, kind: Bucket, name: b}}}]}
`)
	s.becomes(t, ingressKind, "older", "{metadata: {annotations: {c: d, kubernetes.io/ingress.class: null}}}")
	milan.Kubectl(t, "-n", s.twin, "patch", "ingress", "whole", "--subresource=status", "--type=merge", "-p", `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`)

	o := reflectedObject{
		kind: ingressKind, name: "lively",
		manifest: "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: lively, " + meta + "}, spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}}",
	}
	life(t, s, o)
	if ip := env.At(s.here(t, ingressKind, "whole").Object, "status.loadBalancer.ingress"); ip != nil {
		t.Errorf("the status of the Ingress has come back: %v", ip)
	}
	o.name, o.manifest = "strange", strings.Replace(o.manifest, "lively", "strange", 1)
	stranger(t, s, o)
}
