// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	gocmp "cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
)

// identity is a pod of home as the virtual kubelet sees it.
func identity(t *testing.T, spec string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{Spec: read[corev1.PodSpec](t, spec)}
	pod.Name, pod.Namespace, pod.UID = "web-0", "shop", "uid-in-rome"
	pod.Labels = map[string]string{
		"app": "web", "apps.kubernetes.io/pod-index": "0", "topology.kubernetes.io/zone": "milan-a", "cnpg.io/instanceRole": "primary", labels.ShadowPod: "true",
	}
	pod.Annotations = map[string]string{
		"note": "a \"quoted\" $(APP) $$ text\nof two lines", "prometheus.io/scrape": "true", "iam.amazonaws.com/role": "shop",
		corev1.LastAppliedConfigAnnotation: `{"kind":"Pod"}`, labels.AntiAffinityPreset: "soft",
	}
	pod.Spec.NodeName = "liqo-milan"
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = "shopper"
	}
	pod.Status = corev1.PodStatus{PodIP: "10.1.1.54", HostIP: "10.200.1.7"}
	return pod
}

// withoutMark is a pod without the label that is ours.
func withoutMark(pod *corev1.Pod) *corev1.Pod {
	user := pod.DeepCopy()
	delete(user.Labels, labels.ShadowPod)
	return user
}

// TestVariables: the variables and arguments of a container are those at home, except that the API server has a name in place of an address. Among them, a
// variable of the user is never replaced by ours.
func TestVariables(t *testing.T) {
	config := map[string]map[string]string{
		"own":     {"KUBERNETES_SERVICE_HOST": "proxy.example", "OTHER": "1"},
		"port":    {"KUBERNETES_SERVICE_PORT": "8443"},
		"short":   {"SERVICE_HOST": "short.example", "PORT_443_TCP_ADDR": "192.0.2.7"},
		"without": {"LEVEL": "debug"},
	}
	const url = `{name: URL, value: "https://$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)"}`
	for name, container := range map[string]string{
		"nothing":    `{name: main}`,
		"a variable": `{name: main, env: [` + url + `, {name: PORTAL, value: "$(KUBERNETES_PORT) $(KUBERNETES_SERVICE_PORT_HTTPS)"}]}`,
		"arguments": `{name: main, command: [run, "$(KUBERNETES_PORT_443_TCP)"],
			args: ["https://$(KUBERNETES_SERVICE_HOST)", "$$(KUBERNETES_PORT)", "$(NONE)"]}`,
		"a value of the user": `{name: main, env: [{name: KUBERNETES_SERVICE_HOST, value: mine.example}, ` + url + `]}`,
		"a value of the user, set later": `{name: main, env: [` + url +
			`, {name: KUBERNETES_SERVICE_HOST, value: mine.example}], args: ["$(URL) $(KUBERNETES_SERVICE_HOST)"]}`,
		"a value that contains the former": `{name: main, env: [{name: KUBERNETES_SERVICE_HOST, value: "proxy-to-$(KUBERNETES_SERVICE_HOST)"}, ` + url + `]}`,
		"a ConfigMap":                      `{name: main, envFrom: [{configMapRef: {name: own}}], env: [` + url + `]}`,
		"a ConfigMap without it":           `{name: main, envFrom: [{configMapRef: {name: without}}], env: [` + url + `]}`,
		"a Secret":                         `{name: main, envFrom: [{secretRef: {name: own}}], env: [` + url + `]}`,
		"two sources": `{name: main, envFrom: [{configMapRef: {name: own}}, {secretRef: {name: port}}, {configMapRef: {name: without}}],
			env: [` + url + `]}`,
		"a prefix":                   `{name: main, envFrom: [{prefix: KUBERNETES_, configMapRef: {name: short}}], env: [` + url + `]}`,
		"a prefix that does not fit": `{name: main, envFrom: [{prefix: MY_, configMapRef: {name: own}}], env: [` + url + `]}`,
		"a missing source":           `{name: main, envFrom: [{configMapRef: {name: missing, optional: true}}], env: [` + url + `]}`,
		"a source and a value": `{name: main, envFrom: [{configMapRef: {name: own}}], env: [{name: KUBERNETES_SERVICE_HOST, value: mine.example}, ` +
			url + `]}`,
	} {
		for _, kind := range []string{"containers", "initContainers", "ephemeralContainers"} {
			for _, links := range []string{"true", "false"} {
				local := identity(t, "{enableServiceLinks: "+links+", containers: [{name: web}], "+kind+": ["+container+"]}")
				remote := sent(t, local, joined())
				want, wantArgs := home(config).environment(t, local, containers(local)["main"])
				got, gotArgs := away(config).environment(t, remote, containers(remote)["main"])
				moved := strings.NewReplacer("10.80.0.1", "kubernetes.default")
				for key, value := range want {
					want[key] = moved.Replace(value)
				}
				for i := range wantArgs {
					wantArgs[i] = moved.Replace(wantArgs[i])
				}
				if difference := cmp.Diff(sorted(want), sorted(got)); difference != "" {
					t.Errorf("%s, in %s (-home +away):\n%s", name, kind, difference)
				}
				if difference := cmp.Diff(wantArgs, gotArgs); difference != "" {
					t.Errorf("%s, arguments in %s (-home +away):\n%s", name, kind, difference)
				}
			}
		}
	}
}

// TestFieldsOfAPod: by the downward API, a container reads what it reads at home: docs/adr/0039-who-a-pod-is.md has the exceptions.
func TestFieldsOfAPod(t *testing.T) {
	for path, differs := range map[string]string{
		"metadata.name": "", "metadata.namespace": "", "metadata.uid": "", "spec.nodeName": "", "spec.host": "", "spec.serviceAccountName": "",
		"metadata.labels['app']": "", "metadata.labels['apps.kubernetes.io/pod-index']": "", "metadata.labels['topology.kubernetes.io/zone']": "",
		"metadata.labels['cnpg.io/instanceRole']": "", "metadata.labels['missing.example/key']": "", "metadata.labels['" + labels.Origin + "']": "",
		"metadata.labels['" + labels.ManagedBy + "']": "",
		"metadata.annotations['note']":                "", "metadata.annotations['prometheus.io/scrape']": "", "metadata.annotations['iam.amazonaws.com/role']": "",
		"metadata.annotations['" + corev1.LastAppliedConfigAnnotation + "']": "", "metadata.annotations['" + labels.Fence + "']": "",
		"metadata.annotations['" + labels.AntiAffinityPreset + "']": "",
		"status.podIP": "10.200.1.54", "status.podIPs": "10.200.1.54", "status.hostIP": "10.210.2.11", "status.hostIPs": "10.210.2.11",
	} {
		for _, server := range []podspec.APIServer{{}, joined()} {
			local := withoutMark(identity(t, `{containers: [{name: main, env: [{name: FIELD, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: "`+path+`"}}}]}]}`))
			remote := sent(t, local, server)
			want, _ := home(nil).environment(t, local, &local.Spec.Containers[0])
			got, _ := away(nil).environment(t, remote, &remote.Spec.Containers[0])
			if differs != "" {
				want["FIELD"] = differs
			}
			if got["FIELD"] != want["FIELD"] {
				t.Errorf("variable of %s: %q, at home %q", path, got["FIELD"], want["FIELD"])
			}
		}
	}
	for _, path := range []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations", "metadata.labels['topology.kubernetes.io/zone']",
		"metadata.annotations['prometheus.io/scrape']", "metadata.annotations['note']", "metadata.labels['app']",
	} {
		item := `{path: one, fieldRef: {apiVersion: v1, fieldPath: "` + path + `"}}`
		for _, volume := range []string{
			`{name: info, downwardAPI: {items: [` + item + `]}}`,
			`{name: info, projected: {sources: [{downwardAPI: {items: [` + item + `]}}]}}`,
			`{name: info, projected: {sources: [{serviceAccountToken: {path: token}}, {downwardAPI: {items: [` + item + `]}}]}}`,
		} {
			for _, server := range []podspec.APIServer{{}, joined()} {
				local := withoutMark(identity(t, `{containers: [{name: main}], volumes: [`+volume+`]}`))
				remote := sent(t, local, server)
				secrets := map[string]map[string]string{podspec.TokenSecretName(local.Name): {"namespace": local.Namespace}}
				if got, want := away(secrets).files(t, remote)["info/one"], home(nil).files(t, local)["info/one"]; got != want {
					t.Errorf("file of %s in %s:\n%s\nat home:\n%s", path, volume, got, want)
				}
			}
		}
	}
}

// TestKeysThatStay: a key that the administrator does not let out of this cluster is in no file of the remote pod, and neither is a mark of ours.
func TestKeysThatStay(t *testing.T) {
	skipping := mapping
	skipping.Skip = project.Denied{Labels: project.Keys{"cnpg.io/*"}, Annotations: project.Keys{"note"}}
	local := identity(t, `{containers: [{name: main, env: [{name: ROLE, valueFrom: {fieldRef: {fieldPath: "metadata.labels['cnpg.io/instanceRole']"}}}]}],
		volumes: [{name: info, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}},
			{path: annotations, fieldRef: {fieldPath: metadata.annotations}}]}}]}`)
	intent, err := podspec.ShadowPod(skipping, local, podspec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range intent.Annotations {
		if strings.Contains(value, "primary") || strings.Contains(value, "quoted") || strings.Contains(value, labels.ShadowPod) {
			t.Errorf("annotation %s is %q", key, value)
		}
	}
	if got, want := intent.Annotations[labels.Downward+"labels"],
		"app=\"web\"\napps.kubernetes.io/pod-index=\"0\"\ntopology.kubernetes.io/zone=\"milan-a\""; got != want {
		t.Errorf("labels: %s, want %s", got, want)
	}
}

// TestLargeAnnotations: with the annotations that carry fields, a ShadowPod stays within what Kubernetes accepts; the largest are left out.
func TestLargeAnnotations(t *testing.T) {
	const kubernetes = 256 << 10 // k8s.io/apimachinery/pkg/api/validation.TotalAnnotationSizeLimitB
	size := func(all map[string]string) (sum int) {
		for key, value := range all {
			sum += len(key) + len(value)
		}
		return sum
	}
	for _, test := range []struct {
		large map[string]string
		lines []string // of the list
	}{
		{map[string]string{"a": "1", "b.example/large": strings.Repeat("x", 60<<10)}, []string{"a", "b.example/large", "note"}},
		{map[string]string{"a": "1", "b.example/large": strings.Repeat("x", 100<<10)}, []string{"a", "note"}},
		{map[string]string{"a": "1", "b.example/large": strings.Repeat("x", 150<<10)}, []string{"a", "note"}},
		{map[string]string{"a": "1", "large": strings.Repeat("x", 150<<10)}, []string{"a", "note"}},
		{map[string]string{"a": "1", "b.example/large": strings.Repeat("\n", 150<<10)}, []string{"a", "note"}},
		{map[string]string{"large": strings.Repeat("x", 255<<10)}, nil},
	} {
		local := identity(t, `{containers: [{name: main, env: [{name: LARGE, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['b.example/large']"}}}]}],
			volumes: [{name: info, downwardAPI: {items: [{path: annotations, fieldRef: {fieldPath: metadata.annotations}}]}}]}`)
		local.Annotations = map[string]string{"note": "2"}
		for key, value := range test.large {
			local.Annotations[key] = value
		}
		remote := sent(t, local, podspec.APIServer{})
		if got := size(remote.Annotations); got > kubernetes {
			t.Errorf("%d bytes of annotations", got)
		}
		var keys []string
		for line := range strings.Lines(remote.Annotations[labels.Downward+"annotations"]) {
			key, _, _ := strings.Cut(line, "=")
			keys = append(keys, key)
		}
		if !slices.Equal(keys, test.lines) {
			t.Errorf("the list has %q, want %q", keys, test.lines)
		}
	}
}

// TestNames: each name of the API server leads to that of home, through the network if that is known, and never to that of the provider. What the user has
// written into the hosts file stays.
func TestNames(t *testing.T) {
	all := []string{"kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.rome.example", "kubernetes.default.svc.cluster.local"}
	ends := func(host, port string) podspec.APIServer {
		return podspec.APIServer{Enabled: true, Host: host, Port: port, Home: netip.MustParseAddr("10.80.0.1")}
	}
	const nowhere = "255.255.255.255"
	for name, test := range map[string]struct {
		server    podspec.APIServer
		namespace string
		aliases   string
		want      map[string]string // where it is not the address
		address   string
		host      string
	}{
		"through the network": {server: joined(), address: "10.60.0.1", host: "kubernetes.default"},
		"in the namespace default": {
			server: joined(), namespace: "default", address: "10.60.0.1", host: "kubernetes.default",
			want: map[string]string{"kubernetes": "10.60.0.1"},
		},
		"an address outside": {server: ends("203.0.113.7", "6443"), address: "203.0.113.7", host: "203.0.113.7"},
		"a name outside":     {server: ends("api.rome.example", "6443"), address: nowhere, host: "api.rome.example"},
		"an alias with the address": {
			server: joined(), aliases: "[{ip: 10.60.0.1, hostnames: [api]}]", address: "10.60.0.1", host: "kubernetes.default",
			want: map[string]string{"api": "10.60.0.1"},
		},
		"an alias with a name": {
			server: joined(), aliases: "[{ip: 192.0.2.1, hostnames: [kubernetes.default, db]}]", address: "10.60.0.1",
			host: "kubernetes.default.svc", want: map[string]string{"kubernetes.default": "192.0.2.1", "db": "192.0.2.1"},
		},
		"an alias with our own address": {
			server: joined(), aliases: "[{ip: 10.80.0.1, hostnames: [api]}]", address: "10.60.0.1", host: "kubernetes.default",
			want: map[string]string{"api": "10.60.0.1"},
		},
		"the same, and a name outside": {
			server: ends("api.rome.example", "443"), aliases: "[{ip: 10.80.0.1, hostnames: [api]}]", address: nowhere,
			host: "api.rome.example", want: map[string]string{"api": nowhere},
		},
		"aliases with all names": {
			server: joined(), aliases: "[{ip: 192.0.2.1, hostnames: [" + strings.Join(all, ", ") + "]}]", address: "192.0.2.1", host: "kubernetes",
			want: map[string]string{"kubernetes": "10.60.0.1"},
		},
		"aliases with all names, and the bare one": {
			server: joined(), aliases: "[{ip: 192.0.2.1, hostnames: [kubernetes, " + strings.Join(all, ", ") + "]}]", address: "192.0.2.1", host: "10.60.0.1",
			want: map[string]string{"kubernetes": "192.0.2.1"},
		},
	} {
		if test.aliases == "" {
			test.aliases = "[]"
		}
		local := identity(t, `{hostNetwork: true, containers: [{name: main}], hostAliases: `+test.aliases+`}`)
		if test.namespace != "" {
			local.Namespace = test.namespace
		}
		remote := sent(t, local, test.server)
		want := map[string]string{}
		for _, one := range all {
			want[one] = test.address
		}
		for one, address := range test.want {
			want[one] = address
		}
		for one, address := range want {
			if got := hosts(remote, one); !slices.Equal(got, []string{address}) {
				t.Errorf("%s: %s is %v, want %s", name, one, got, address)
			}
		}
		if _, ok := want["kubernetes"]; !ok && hosts(remote, "kubernetes") != nil {
			t.Errorf("%s: the bare name is %v; at home, pods of this namespace do not resolve it", name, hosts(remote, "kubernetes"))
		}
		variables, _ := away(nil).environment(t, remote, &remote.Spec.Containers[0])
		for key, value := range variables {
			if strings.Contains(value, "10.96.0.1") {
				t.Errorf("%s: %s=%s leads to the API server of the provider", name, key, value)
			}
		}
		if variables["KUBERNETES_SERVICE_HOST"] != test.host {
			t.Errorf("%s: KUBERNETES_SERVICE_HOST=%s, want %s", name, variables["KUBERNETES_SERVICE_HOST"], test.host)
		}
	}
}

// TestNoTokens: whatever a pod mounts, its specification in the peer asks for no token there, and no Secret with a lasting token of home is copied.
func TestNoTokens(t *testing.T) {
	for _, server := range []podspec.APIServer{{}, joined()} {
		local := identity(t, `{automountServiceAccountToken: true, imagePullSecrets: [{name: registry}], containers: [{name: main}], volumes: [
			{name: default, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 3607}}]}},
			{name: vault, projected: {sources: [{serviceAccountToken: {path: vault, audience: vault}}, {clusterTrustBundle: {name: a, path: b}}]}},
			{name: certificate, projected: {sources: [{podCertificate: {signerName: x}}]}}]}`)
		remote := sent(t, local, server)
		if *remote.Spec.AutomountServiceAccountToken || remote.Spec.ServiceAccountName != "default" {
			t.Errorf("account %s, token %t", remote.Spec.ServiceAccountName, *remote.Spec.AutomountServiceAccountToken)
		}
		for path, content := range away(nil).files(t, remote) {
			if strings.HasPrefix(content, "token of") {
				t.Errorf("%s is a %s", path, content)
			}
		}
	}
	for kind, copied := range map[corev1.SecretType]bool{
		corev1.SecretTypeServiceAccountToken: false, corev1.SecretTypeBootstrapToken: false, "helm.sh/release.v1": false,
		corev1.SecretTypeOpaque: true, corev1.SecretTypeDockerConfigJson: true, corev1.SecretTypeDockercfg: true, corev1.SecretTypeTLS: true,
		corev1.SecretTypeBasicAuth: true, corev1.SecretTypeSSHAuth: true,
	} {
		secret := &corev1.Secret{Type: kind, Data: map[string][]byte{"token": []byte("secret")}}
		secret.Name, secret.Namespace = "one", "shop"
		if got := kinds.Secret.Copy(mapping, secret) != nil; got != copied {
			t.Errorf("a Secret of the type %s is copied: %t, want %t", kind, got, copied)
		}
		if why := kinds.StaysHere(mapping, secret); (why == "") != copied {
			t.Errorf("a Secret of the type %s stays here: %q", kind, why)
		}
	}
}

// TestAddressOfAPod: a container that reads liqo.io/pod-ip gets the address that this cluster shows, once it does; at home, and before that, an empty text. The
// file of all annotations does not have it.
func TestAddressOfAPod(t *testing.T) {
	local := identity(t, `{containers: [{name: main}], volumes: [{name: info, downwardAPI: {items: [
		{path: address, fieldRef: {apiVersion: v1, fieldPath: "metadata.annotations['liqo.io/pod-ip']"}},
		{path: all, fieldRef: {apiVersion: v1, fieldPath: metadata.annotations}}]}}]}`)
	local.Status.PodIP = ""
	if got := away(nil).files(t, sent(t, local, joined()))["info/address"]; got != "" || !podspec.ReadsAddress(local) {
		t.Errorf("before the pod has an address: %q", got)
	}
	local.Status.PodIP = "10.1.1.54"
	files := away(nil).files(t, sent(t, local, joined()))
	if files["info/address"] != "10.1.1.54" || strings.Contains(files["info/all"], "10.1.1.54") {
		t.Errorf("files %v", files)
	}
	if home := home(nil).files(t, local); home["info/address"] != "" || home["info/all"] != files["info/all"] {
		t.Errorf("at home: files %v", home)
	}
	if podspec.ReadsAddress(identity(t, `{containers: [{name: main, env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]}]}`)) {
		t.Error("a pod that reads another field costs a write")
	}
}

// TestRequests: a container that requests nothing reads 0, as at home; the provider gives it a request.
func TestRequests(t *testing.T) {
	const reads = `env: [{name: CPU, valueFrom: {resourceFieldRef: {resource: requests.cpu}}},
		{name: OTHER, valueFrom: {resourceFieldRef: {containerName: other, resource: requests.memory}}},
		{name: LIMIT, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]`
	for spec, want := range map[string]string{
		`{containers: [{name: main, ` + reads +
			`}, {name: other}]}`: "CPU=0 OTHER=0 LIMIT=limits.cpu of main",
		`{containers: [{name: main, resources: {requests: {memory: 1Gi}}, ` + reads +
			`}, {name: other, resources: {limits: {cpu: "1"}}}]}`: "CPU=0 OTHER=0 LIMIT=limits.cpu of main",
		`{containers: [{name: main, resources: {requests: {cpu: "1"}}, ` + reads + `}, {name: other, resources: {limits: {memory: 1Gi}}}]}`: "CPU=requests.cpu of " +
			"main OTHER=requests.memory of other LIMIT=limits.cpu of main",
		`{resources: {requests: {cpu: "1"}}, containers: [{name: main, ` + reads + `}, {name: other}]}`: "CPU=requests.cpu of " +
			"main OTHER=requests.memory of other LIMIT=limits.cpu of main",
	} {
		remote := sent(t, identity(t, spec), podspec.APIServer{})
		var got []string
		for _, one := range remote.Spec.Containers[0].Env {
			value := one.Value
			if one.ValueFrom != nil {
				value = one.ValueFrom.ResourceFieldRef.Resource + " of " + gocmp.Or(one.ValueFrom.ResourceFieldRef.ContainerName, "main")
			}
			got = append(got, one.Name+"="+value)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s", spec, strings.Join(got, " "), want)
		}
	}
	remote := sent(t,
		identity(t, `{containers: [{name: main}], volumes: [{name: info, downwardAPI: {items: [
			{path: cpu, resourceFieldRef: {containerName: main, resource: requests.cpu}}]}}]}`), podspec.APIServer{})
	if got := away(nil).files(t, remote)["info/cpu"]; got != "0" {
		t.Errorf("the file of a request that is none: %q", got)
	}
}

// TestFullName: a pod that asks for its full name as the name of its host gets the one that it has at home.
func TestFullName(t *testing.T) {
	for name, test := range map[string]struct{ spec, override, asFQDN string }{
		"asked":           {`{setHostnameAsFQDN: true, hostname: db-0, subdomain: db, containers: [{name: main}]}`, "db-0.db.shop.svc.rome.example", "unset"},
		"by its own name": {`{setHostnameAsFQDN: true, subdomain: db, containers: [{name: main}]}`, "web-0.db.shop.svc.rome.example", "unset"},
		"no full name":    {`{setHostnameAsFQDN: true, hostname: db-0, containers: [{name: main}]}`, "", "true"},
		"not asked":       {`{setHostnameAsFQDN: false, hostname: db-0, subdomain: db, containers: [{name: main}]}`, "", "false"},
		"unset":           {`{hostname: db-0, subdomain: db, containers: [{name: main}]}`, "", "unset"},
		"of the user":     {`{hostnameOverride: mine.example, hostname: db-0, subdomain: db, containers: [{name: main}]}`, "mine.example", "unset"},
		"too long": {
			`{setHostnameAsFQDN: true, hostname: ` + strings.Repeat("d", 40) + `, subdomain: db, containers: [{name: main}]}`, "", "true",
		},
	} {
		spec := sent(t, identity(t, test.spec), joined()).Spec
		override, asFQDN := "", "unset"
		if spec.HostnameOverride != nil {
			override = *spec.HostnameOverride
		}
		if spec.SetHostnameAsFQDN != nil {
			asFQDN = strconv.FormatBool(*spec.SetHostnameAsFQDN)
		}
		if override != test.override || asFQDN != test.asFQDN || spec.Subdomain != identity(t, test.spec).Spec.Subdomain ||
			spec.Hostname != identity(t, test.spec).Spec.Hostname {
			t.Errorf("%s: hostnameOverride %q, setHostnameAsFQDN %s, hostname %q, subdomain %q", name, override, asFQDN, spec.Hostname, spec.Subdomain)
		}
	}
}

// TestHomeDNS: the ShadowPod of a pod that names the DNS of its own cluster by address states that, so that the provider puts its own name
// server there. Other pods have no annotation more.
func TestHomeDNS(t *testing.T) {
	knows := mapping
	knows.DNS = []netip.Addr{netip.MustParseAddr("10.80.0.10"), netip.MustParseAddr("fd00:80::a")}
	for config, want := range map[string]string{
		`{}`: "", `{searches: [example.com]}`: "", `{nameservers: [1.1.1.1, 10.96.0.10]}`: "",
		`{nameservers: [10.80.0.10]}`: "10.80.0.10", `{nameservers: [1.1.1.1, "FD00:80::A", 10.80.0.10, 10.80.0.10]}`: "FD00:80::A,10.80.0.10",
		`{nameservers: [169.254.20.10]}`: "169.254.20.10",
	} {
		for _, policy := range []string{"None", "ClusterFirst"} {
			intent, err := podspec.ShadowPod(knows, identity(t, `{containers: [{name: main}], dnsPolicy: `+policy+`, dnsConfig: `+config+`}`), podspec.Options{})
			if err != nil {
				t.Fatal(err)
			}
			got, ok := intent.Annotations[labels.HomeDNS]
			if got != want || ok != (want != "") {
				t.Errorf("%s, %s: %q, want %q", policy, config, got, want)
			}
		}
	}
}
