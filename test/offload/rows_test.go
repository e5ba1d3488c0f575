// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"encoding/base64"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/fields"
)

// TestRows tests the reflected kinds, as the rows of the table in docs/offloading.md: which fields arrive, and what a change by either cluster
// does.
func TestRows(t *testing.T) {
	together(t)
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

// reflectedObject is the object of a lifecycle test.
type reflectedObject struct {
	kind, name string
	// manifest contains %s in place of the value that changes.
	manifest string
	// remoteName is the name in milan, if it differs.
	remoteName string
	// shadow is the kind in milan, if it differs.
	shadow string
}

// lifecycle changes and deletes an object in both clusters: milan always follows rome.
func lifecycle(t *testing.T, s namespace, o reflectedObject) {
	t.Helper()
	if o.remoteName == "" {
		o.remoteName = o.name
	}
	if o.shadow == "" {
		o.shadow = o.kind
	}
	version := func(v string) string { return strings.ReplaceAll(o.manifest, "%s", v) }
	labelled := func(v string) string {
		return `metadata: {labels: {version: ` + v +
			`, virtualkubelet.liqo.io/origin: ROMEID, virtualkubelet.liqo.io/destination: MILANID}, annotations: {note: ` + v + `}}`
	}
	resource := strings.ToLower(o.kind[strings.LastIndex(o.kind, "/")+1:])
	remoteResource := strings.ToLower(o.shadow[strings.LastIndex(o.shadow, "/")+1:])

	s.apply(t, version("one"))
	s.wantRemote(t, o.shadow, o.remoteName, labelled("one"))
	s.apply(t, version("two"))
	s.wantRemote(t, o.shadow, o.remoteName, labelled("two"))

	s.remoteKubectl(t, "label", remoteResource, o.remoteName, "version=edited", "--overwrite")
	s.remoteKubectl(t, "annotate", remoteResource, o.remoteName, "note=edited", "--overwrite")
	before := s.wantRemote(t, o.shadow, o.remoteName, labelled("two"))

	s.remoteKubectl(t, "delete", remoteResource, o.remoteName)
	env.Eventually(t, env.Hang, o.remoteName+" comes back", func() (string, bool) {
		now := s.inMilan(t, o.shadow, o.remoteName)
		return "", now != nil && now.GetUID() != before.GetUID()
	})
	s.wantRemote(t, o.shadow, o.remoteName, labelled("two"))

	s.kubectl(t, "annotate", resource, o.name, "liqo.io/skip-reflection=whatever")
	wantGone(t, milan, o.shadow, s.remote, o.remoteName)
	s.kubectl(t, "annotate", resource, o.name, "liqo.io/skip-reflection-")
	s.wantRemote(t, o.shadow, o.remoteName, labelled("two"))

	s.kubectl(t, "delete", resource, o.name)
	wantGone(t, milan, o.shadow, s.remote, o.remoteName)
}

// unmanaged creates an object of the same name in milan first: Liqo does not change it, and reports that on the local object.
func unmanaged(t *testing.T, s namespace, o reflectedObject) {
	t.Helper()
	resource := strings.ToLower(o.kind[strings.LastIndex(o.kind, "/")+1:])
	own := strings.ReplaceAll(o.manifest, "%s", "milan")
	s.createInMilan(t, own)
	before := s.inMilan(t, o.kind, o.name)
	s.apply(t, strings.ReplaceAll(o.manifest, "%s", "one"))
	s.wantEvent(t, o.kind[strings.LastIndex(o.kind, "/")+1:], o.name, "FailedReflection", "not managed")
	s.kubectl(t, "label", resource, o.name, "version=two", "--overwrite")
	s.kubectl(t, "delete", resource, o.name)
	// This ConfigMap arrives after the deletion above has been processed.
	s.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: after-"+o.name+"}}")
	s.wantRemote(t, configMapKind, "after-"+o.name, "{}")
	after := s.inMilan(t, o.kind, o.name)
	if after == nil || after.GetUID() != before.GetUID() || after.GetResourceVersion() != before.GetResourceVersion() {
		t.Fatalf("%s of milan was changed or deleted: %s, then %s", o.name, inJSON(before), inJSON(after))
	}
	s.apply(t, strings.ReplaceAll(o.manifest, "%s", "one"))
	s.remoteKubectl(t, "delete", resource, o.name)
	s.wantRemote(t, o.kind, o.name, "metadata: {labels: {version: one, virtualkubelet.liqo.io/origin: ROMEID}}")
}

// meta is the metadata of each object of a lifecycle test.
const meta = `labels: {version: "%s", app: x}, annotations: {note: "%s"}`

func configMapRow(t *testing.T) {
	s := offload(t)
	s.wantRemote(t, configMapKind, "kube-root-ca.crt."+identity(t, rome)[:5], "{data: {ca.crt: '~(?s)-----BEGIN CERTIFICATE-----.*'}}")
	s.apply(t, `
apiVersion: v1
kind: ConfigMap
metadata: {name: whole, labels: {a: b}, annotations: {c: d}}
data: {text: hello, more: "1"}
binaryData: {bytes: AAEC}
immutable: true
`)
	s.wantRemote(t, configMapKind, "whole", `
metadata: {labels: {a: b, virtualkubelet.liqo.io/origin: ROMEID, virtualkubelet.liqo.io/destination: MILANID}, annotations: {c: d, kubectl.kubernetes.io/last-applied-configuration: null}}
data: {text: hello, more: "1"}
binaryData: {bytes: AAEC}
immutable: true
`)
	s.kubectl(t, "delete", "configmap", "whole")
	s.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: whole}, data: {text: other}, immutable: true}")
	s.wantRemote(t, configMapKind, "whole", "{data: {text: other, more: null}, binaryData: null}")

	s.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: skipped, annotations: {liqo.io/skip-reflection: ''}}}")
	o := reflectedObject{
		kind: configMapKind, name: "lifecycle",
		manifest: "{apiVersion: v1, kind: ConfigMap, metadata: {name: lifecycle, " + meta + "}, data: {v: '%s'}}",
	}
	lifecycle(t, s, o)
	if found := s.inMilan(t, configMapKind, "skipped"); found != nil {
		t.Errorf("a ConfigMap with the skip annotation was reflected: %s", inJSON(found))
	}
	o.name, o.manifest = "unmanaged", strings.Replace(o.manifest, "lifecycle", "unmanaged", 1)
	unmanaged(t, s, o)

	// The reflection restores data as well.
	s.remoteKubectl(t, "patch", "configmap", "unmanaged", "--type=merge", "-p", `{"data":{"v":"edited"}}`)
	s.wantRemote(t, configMapKind, "unmanaged", "{data: {v: one}}")
}

func secretRow(t *testing.T) {
	s := offload(t)
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
metadata: {name: typed}
type: example.com/bytes
data: {release: AAEC}
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
	s.wantRemote(t, secretKind, "whole", `
metadata: {labels: {a: b, virtualkubelet.liqo.io/origin: ROMEID, virtualkubelet.liqo.io/destination: MILANID}, annotations: {c: d, kubectl.kubernetes.io/last-applied-configuration: null}}
data: {password: c2VjcmV0}
type: Opaque
immutable: true
`)
	s.wantRemote(t, secretKind, "pull", "{type: kubernetes.io/dockerconfigjson, data: {.dockerconfigjson: "+pull+"}}")
	s.wantRemote(t, secretKind, "typed", "{type: example.com/bytes, data: {release: AAEC}}")
	s.kubectl(t, "delete", "secret", "pull")
	wantGone(t, milan, secretKind, s.remote, "pull")
	s.apply(t, "{apiVersion: v1, kind: Secret, metadata: {name: pull}, data: {other: AAEC}}")
	s.wantRemote(t, secretKind, "pull", "{type: Opaque, data: {other: AAEC, .dockerconfigjson: null}}")

	o := reflectedObject{
		kind: secretKind, name: "lifecycle",
		manifest: "{apiVersion: v1, kind: Secret, metadata: {name: lifecycle, " + meta + "}, stringData: {v: '%s'}}",
	}
	lifecycle(t, s, o)
	for _, never := range []string{"account", "sh.helm.release.v1.x.v1"} {
		if found := s.inMilan(t, secretKind, never); found != nil {
			t.Errorf("%s was reflected, with type %v", never, found.Object["type"])
		}
	}
	o.name, o.manifest = "unmanaged", strings.Replace(o.manifest, "lifecycle", "unmanaged", 1)
	unmanaged(t, s, o)
}

func ingressRow(t *testing.T) {
	s := offload(t)
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
	s.wantRemote(t, ingressKind, "whole", `
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
	s.wantRemote(t, ingressKind, "older", "{metadata: {annotations: {c: d, kubernetes.io/ingress.class: null}}}")
	milan.Kubectl(
		t, "-n", s.remote, "patch", "ingress", "whole", "--subresource=status", "--type=merge", "-p",
		`{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`,
	)

	o := reflectedObject{
		kind: ingressKind, name: "lifecycle",
		manifest: "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: lifecycle, " +
			meta + "}, spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}}",
	}
	lifecycle(t, s, o)
	if ip := fields.At(s.local(t, ingressKind, "whole").Object, "status.loadBalancer.ingress"); ip != nil {
		t.Errorf("the status of the Ingress was reflected to rome: %v", ip)
	}
	o.name, o.manifest = "unmanaged", strings.Replace(o.manifest, "lifecycle", "unmanaged", 1)
	unmanaged(t, s, o)
}
