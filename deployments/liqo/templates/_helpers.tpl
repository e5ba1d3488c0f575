{{/*
Names are fixed and do not contain the release name, so that programs and people find these objects by name.
All helpers take a dict: root (the dollar), component, and the parameters in their comment.
*/}}

{{- define "liqo.selector" -}}
app.kubernetes.io/name: {{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "liqo.labels" -}}
{{ include "liqo.selector" . }}
app.kubernetes.io/part-of: liqo
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name (.root.Chart.Version | replace "+" "_") }}
{{- end }}

{{/*
image: the one of all roles, or imageName of the role, to which the digest does not belong; and the one tag of all. Images of the documentation
contain none of our processes, so they do not count.
*/}}
{{- define "liqo.image" -}}
{{- $own := .imageName }}
{{- range fromYamlArray (.root.Files.Get "files/values-without-effect.yaml") }}
{{- if and .only (regexMatch .only ($own | default "")) }}{{ $own = "" }}{{ end }}
{{- end }}
{{- $own | default .root.Values.imageName }}:{{ .root.Values.tag | default .root.Chart.AppVersion }}
{{- if and .root.Values.digest (not $own) }}@{{ .root.Values.digest }}{{ end }}
{{- end }}

{{/*
A note for each reason why a value that the user set has no effect. liqoctl finds the notes by their first word.
*/}}
{{- define "liqo.notes" -}}
{{- range $entry := fromYamlArray (.Files.Get "files/values-without-effect.yaml") }}
{{- $set := list }}
{{- $satisfied := list }}
{{- range $entry.unless }}{{ $satisfied = append $satisfied (toJson .) }}{{ end }}
{{- range $path := $entry.values }}
{{- $content := $.Values }}
{{- range splitList "." $path }}
{{- if kindIs "map" $content }}{{ $content = index $content . }}{{ else }}{{ $content = "" }}{{ end }}
{{- end }}
{{- if not (or (empty $content) (has (toJson $content) $satisfied) (and $entry.only (not (regexMatch $entry.only (toString $content))))) }}
{{- $set = append $set $path }}
{{- end }}
{{- end }}
{{- if $set }}
NOTE: {{ join ", " $set }} {{ gt (len $set) 1 | ternary "have" "has" }} no effect: {{ $entry.because }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether hosts of peers are compared with those of others: only if a policy does not refuse all of them. */}}
{{- define "liqo.comparesHosts" -}}
{{- if or .Values.peers.ingresses.hosts (not (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy")) }}true{{ end }}
{{- end }}

{{/* Whether a policy bounds the images of peers. */}}
{{- define "liqo.boundsImages" -}}
{{- $images := .Values.peers.images }}
{{- if or $images.deny (not (has "*" $images.allow)) $images.alwaysPull }}true{{ end }}
{{- end }}

{{/*
The documents of a template, in which each policy, binding and ValidatingWebhookConfiguration states what it is: internal/kube/policies computes the same
digest from what the cluster has, and so knows whether it is what this chart made. The digest stands on the object, so that an upgrade changes both at
once. It leaves out what may change without a peer gaining by it: certificates, deadlines, the secret segment of the paths, and further actions of a binding.
*/}}
{{- define "liqo.digested" -}}
{{- range splitList "\n---\n" . }}
---
{{- $object := fromYaml . | default dict }}
{{- $made := "" }}
{{- if eq $object.kind "ValidatingAdmissionPolicy" }}
{{- $made = $object.spec }}
{{- else if eq $object.kind "ValidatingAdmissionPolicyBinding" }}
{{- $made = omit $object.spec "validationActions" }}
{{- else if eq $object.kind "ValidatingWebhookConfiguration" }}
{{- $made = $object.webhooks }}
{{- range $made }}
{{- $_ := unset . "timeoutSeconds" }}
{{- $_ := unset .clientConfig "caBundle" }}
{{- $_ := set .clientConfig.service "path" (regexReplaceAll "^/[^/]*" .clientConfig.service.path "") }}
{{- end }}
{{- end }}
{{ if $made }}{{ regexReplaceAll "(?m)^(spec|webhooks):$" . (printf "  annotations:\n    liqo.io/spec-digest: %s\n${1}:" (toJson $made | sha256sum)) }}{{ else }}{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/*
The certificate of a server of ours that API servers call, as YAML: (dict "root" DOLLAR "before" SECRET "service" NAME "authority" NAME), where SECRET is the one
of the cluster, or empty. "data" is what the Secret holds, "made" when its certificate was made, and "trusted" what API servers get to verify it.
An upgrade replaces a certificate that is older than 90 days by the next one. API servers have trusted that since it was made, and trust the past one until
the next replacement, so that they accept whichever a process serves meanwhile, also after a rollback.
*/}}
{{- define "liqo.certificates" -}}
{{- $at := . }}
{{- $host := printf "%s.%s.svc" .service .root.Release.Namespace }}
{{- $certs := .before.data | default dict }}
{{- $made := dig "metadata" "annotations" "liqo.io/certificate-made" "0" .before }}
{{- $now := now | unixEpoch }}
{{- $fresh := list }}
{{- range until 2 }}
{{- $authority := genCAWithKey $at.authority 3650 (genPrivateKey "ecdsa") }}
{{- $signed := genSignedCertWithKey $host nil (list $host (printf "%s.cluster.local" $host)) 3650 $authority (genPrivateKey "ecdsa") }}
{{- $fresh = append $fresh (dict "ca" (b64enc $authority.Cert) "cert" (b64enc $signed.Cert) "key" (b64enc $signed.Key)) }}
{{- end }}
{{- $next := index $fresh 1 }}
{{- $kept := and $certs.ca $certs.cert $certs.key }}
{{- $announced := and $kept $certs.nextCA $certs.nextCert $certs.nextKey }}
{{- $data := pick $certs "ca" "cert" "key" "nextCA" "nextCert" "nextKey" "pastCA" }}
{{- if and $announced (gt (sub (int64 $now) (int64 $made)) 7776000) }}
{{- $data = dict "ca" $certs.nextCA "cert" $certs.nextCert "key" $certs.nextKey "pastCA" $certs.ca "nextCA" $next.ca "nextCert" $next.cert "nextKey" $next.key }}
{{- $made = $now }}
{{- else if not $announced }}
{{- $current := index $fresh 0 }}
{{- if $kept }}
{{- $current = $certs }}
{{- end }}
{{- $data = dict "ca" $current.ca "cert" $current.cert "key" $current.key "nextCA" $next.ca "nextCert" $next.cert "nextKey" $next.key }}
{{- $made = $now }}
{{- end }}
{{- $trusted := printf "%s%s%s" (b64dec $data.ca) (b64dec $data.nextCA) (b64dec ($data.pastCA | default "")) | b64enc }}
{{- dict "data" $data "made" $made "trusted" $trusted | toYaml }}
{{- end }}

{{/* With which Secrets of the install namespace nodes pull the image of a pod. */}}
{{- define "liqo.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where pods may run: the values of the user, plus tolerations and affinity of the component. */}}
{{- define "liqo.placement" -}}
{{- with .root.Values.common.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat (.tolerations | default list) .root.Values.common.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
affinity: {{- include "liqo.affinity" (merge (deepCopy .root.Values.common.affinity) (.affinity | default dict)) | nindent 2 }}
{{- end }}

{{/*
An affinity that also excludes virtual nodes. The taint of a virtual node does not exclude pods that tolerate everything. A node needs to match
only one term, so each term gets our condition.
*/}}
{{- define "liqo.affinity" -}}
{{- $real := dict "key" "liqo.io/type" "operator" "NotIn" "values" (list "virtual-node") }}
{{- $affinity := deepCopy . }}
{{- $node := $affinity.nodeAffinity | default dict }}
{{- $terms := list }}
{{- range ($node.requiredDuringSchedulingIgnoredDuringExecution | default dict).nodeSelectorTerms | default (list dict) }}
{{- $terms = append $terms (set . "matchExpressions" (append (.matchExpressions | default list) $real)) }}
{{- end }}
{{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) }}
{{- toYaml (set $affinity "nodeAffinity" $node) }}
{{- end }}

{{/* The strictest level of the Pod Security Standards. Our processes do not write to their disk. */}}
{{- define "liqo.podSecurity" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{/*
The token of the account, for those containers that call the API server. Kubernetes would mount one into every container, and let it live for a year where the
API server extends tokens.
*/}}
{{- define "liqo.tokenVolume" -}}
- name: api-access
  projected:
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}]}
{{- end }}

{{- define "liqo.tokenMount" -}}
- {name: api-access, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}

{{- define "liqo.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* The environment of every process. */}}
{{- define "liqo.environment" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: CLUSTER_ID
  valueFrom: {configMapKeyRef: {name: liqo-clusterid-configmap, key: CLUSTER_ID}}
- name: CLUSTER_NAME
  valueFrom: {configMapKeyRef: {name: liqo-clusterid-configmap, key: CLUSTER_NAME}}
{{- end }}

{{- define "liqo.probes" -}}
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 20
  timeoutSeconds: 5
  initialDelaySeconds: 10
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 2
{{- end }}

{{/* An argument whose value is a map: key=value,key=value. The flag parses it as a line of CSV. */}}
{{- define "liqo.mapArgument" -}}
{{- $pairs := list }}
{{- range $key, $value := .map }}
{{- $pair := printf "%s=%v" $key $value }}
{{- if regexMatch "[,\"\n]" $pair }}{{ $pair = $pair | replace "\"" "\"\"" | printf "\"%s\"" }}{{ end }}
{{- $pairs = append $pairs $pair }}
{{- end }}
{{- printf "%s=%s" .flag (join "," $pairs) | quote }}
{{- end }}

{{/*
The rights of one role, from its generated file. A Role is for the install namespace. A ClusterRole of the
role's own name is bound for the whole cluster, unless bind is false; others are bound by controllers, in single namespaces.
*/}}
{{- define "liqo.rights" }}
{{- $at := . }}
{{- $name := printf "liqo-%s" .component }}
{{- $account := .account | default $name }}
{{- range regexSplit "(?m)^---$" (.root.Files.Get (printf "files/rbac-%s.yaml" .component)) -1 }}
{{- $role := fromYaml . }}
{{- if $role.kind }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $role.kind }}
metadata:
  name: {{ $role.metadata.name }}
  {{- if eq $role.kind "Role" }}
  namespace: {{ $at.root.Release.Namespace }}
  {{- end }}
  labels: {{- include "liqo.labels" $at | nindent 4 }}
  {{- with $at.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
rules: {{- toYaml (concat $role.rules (index ($at.more | default dict) $role.metadata.name | default list)) | nindent 2 }}
{{- if and $at.bind (eq $role.metadata.name $name) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $role.kind }}Binding
metadata:
  name: {{ $role.metadata.name }}
  {{- if eq $role.kind "Role" }}
  namespace: {{ $at.root.Release.Namespace }}
  {{- end }}
  labels: {{- include "liqo.labels" $at | nindent 4 }}
  {{- with $at.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $role.kind }}
  name: {{ $role.metadata.name }}
subjects:
  - kind: ServiceAccount
    name: {{ $account }}
    namespace: {{ $at.root.Release.Namespace }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/*
The controller manager serves these webhooks, so they must not apply to its own writes, which would fail while it restarts. (Kubernetes 1.28
and later.)
*/}}
{{- define "liqo.notItself" -}}
{{- if semverCompare ">=1.28.0-0" .Capabilities.KubeVersion.Version -}}
matchConditions:
  - name: not-itself
    expression: request.userInfo.username != "system:serviceaccount:{{ .Release.Namespace }}:liqo-controller-manager"
{{- end -}}
{{- end }}

{{/*
Rules for custom resources by the names of their definitions, as JSON in a list: (dict "value" NAME "names" LIST "verbs" LIST "status" LIST), where value is the
value that lists them, and status are the verbs on their status. What a cluster grants of its own kinds is in the files, not in values.
*/}}
{{- define "liqo.customRules" }}
{{- $rules := list }}
{{- $at := . }}
{{- range .names }}
{{- $name := index (splitn "." 2 .) "_0" }}
{{- $group := index (splitn "." 2 .) "_1" }}
{{- if regexMatch "(^|\\.)liqo\\.io$|^(admissionregistration|apiextensions|apiregistration|authentication|authorization|rbac\\.authorization|certificates|coordination|discovery|events|flowcontrol\\.apiserver|internal\\.apiserver|metrics|networking|node|resource|scheduling|storage|storagemigration)\\.k8s\\.io$" $group }}
{{- fail (printf "value %s: %s belongs to Kubernetes or to Liqo itself; only custom resources of others can be listed" $at.value .) }}
{{- end }}
{{- $rules = append $rules (dict "apiGroups" (list $group) "resources" (list $name) "verbs" $at.verbs) }}
{{- with $at.status }}
{{- $rules = append $rules (dict "apiGroups" (list $group) "resources" (list (printf "%s/status" $name)) "verbs" .) }}
{{- end }}
{{- end }}
{{- toJson $rules }}
{{- end }}

{{/* In a remote namespace, Liqo alone creates pods, unless an administrator has opened it. */}}
{{- define "liqo.mayCreatePods" -}}
request.operation != "CREATE" || request.userInfo.username == "system:serviceaccount:{{ .Release.Namespace }}:liqo-controller-manager" || namespaceObject.metadata.?annotations[?"liqo.io/open-remote-namespace"].orValue("") == "true"
{{- end }}

{{/* Why a remote namespace accepts nothing of others. */}}
{{- define "liqo.closedNamespace" -}}
this namespace belongs to another cluster, which reads its Secrets and enters its pods: use another namespace; an administrator who accepts this may annotate the namespace with liqo.io/open-remote-namespace=true
{{- end }}

{{/*
The ResourceQuota of each remote namespace, as JSON. By default, there is none where the webhooks count what peers write. (Kubernetes 1.28 and later.)
A bound that is null is none, because values of earlier versions drop a default so.
*/}}
{{- define "liqo.peerQuota" -}}
{{- $quota := .Values.controllerManager.config.peerQuota -}}
{{- $stated := dict -}}
{{- range $name, $bound := $quota }}{{ if not (kindIs "invalid" $bound) }}{{ $_ := set $stated $name $bound }}{{ end }}{{ end -}}
{{- if or $stated (kindIs "invalid" $quota) (semverCompare ">=1.28.0-0" .Capabilities.KubeVersion.Version) -}}
{{- toJson $stated -}}
{{- else -}}
{{- $default := merge (dict "services.loadbalancers" "10" "services.nodeports" "100" "requests.storage" "1Ti") (include "liqo.kinds" . | fromYaml).most -}}
{{- range $name, $none := $quota }}{{ $_ := unset $default $name }}{{ end -}}
{{- toJson $default -}}
{{- end -}}
{{- end }}

{{/*
What the chart has to know of each kind that a peer writes, as YAML: made by `make generate` from the rows in internal/offloading/kinds.
*/}}
{{- define "liqo.kinds" -}}
{{ .Files.Get "files/kinds.yaml" }}
{{- end }}
