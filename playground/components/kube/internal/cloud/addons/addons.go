// SPDX-License-Identifier: Apache-2.0

// Package addons applies the objects that a cluster starts with.
//
// Render decides from the settings which objects these are; Apply writes them. addons_test.go proves the first, integration_test.go of package
// cloud the second.
package addons

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"sync"
	"text/template"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/playground/components/kube/internal/cloud/loop"
	"liqo.io/liqo/playground/components/kube/internal/cloud/settings"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// Manifest is one object to apply.
type Manifest struct {
	Path string // REST path of the object
	body []byte // YAML
	late bool   // its controller starts pods at once, which need all the other objects
}

// resources are the REST collections of the kinds in manifests/, so that no discovery is needed.
var resources = map[string]struct{ group, name string }{
	"v1/ConfigMap":       {"/api/v1", "configmaps"},
	"v1/Service":         {"/api/v1", "services"},
	"v1/ServiceAccount":  {"/api/v1", "serviceaccounts"},
	"apps/v1/Deployment": {"/apis/apps/v1", "deployments"},
	"rbac.authorization.k8s.io/v1/ClusterRole":        {"/apis/rbac.authorization.k8s.io/v1", "clusterroles"},
	"rbac.authorization.k8s.io/v1/ClusterRoleBinding": {"/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings"},
	"rbac.authorization.k8s.io/v1/RoleBinding":        {"/apis/rbac.authorization.k8s.io/v1", "rolebindings"},
	"storage.k8s.io/v1/StorageClass":                  {"/apis/storage.k8s.io/v1", "storageclasses"},
	"apiregistration.k8s.io/v1/APIService":            {"/apis/apiregistration.k8s.io/v1", "apiservices"},
}

// Render returns the objects a cluster starts with. A cluster without real nodes gets
// only those that need no pod.
func Render(config settings.Config) ([]Manifest, error) {
	files := []string{"cluster.yaml"}
	if len(config.Nodes) > 0 && config.Images.CoreDNS != "" {
		files = append(files, "coredns.yaml")
	}
	if len(config.Nodes) > 0 && config.Images.MetricsServer != "" {
		files = append(files, "metrics-server.yaml")
	}
	templates, err := template.New("").Option("missingkey=error").ParseFS(manifests, "manifests/*.yaml")
	if err != nil {
		return nil, err
	}
	var all []Manifest
	for _, file := range files {
		var text bytes.Buffer
		if err := templates.ExecuteTemplate(&text, file, config); err != nil {
			return nil, err
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(&text))
		for {
			body, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			object, err := newManifest(body)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			all = append(all, object)
		}
	}
	return all, nil
}

func newManifest(body []byte) (Manifest, error) {
	var object metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(body, &object); err != nil {
		return Manifest{}, err
	}
	kind := object.APIVersion + "/" + object.Kind
	resource, known := resources[kind]
	if !known || object.Name == "" {
		return Manifest{}, fmt.Errorf("object %q of kind %q: no name, or a kind without entry in the table of resources", object.Name, kind)
	}
	path := resource.group
	if object.Namespace != "" {
		path += "/namespaces/" + object.Namespace
	}
	return Manifest{Path: path + "/" + resource.name + "/" + object.Name, body: body, late: object.Kind == "Deployment"}, nil
}

// Loop returns a loop that applies all addons once per session: at start, and after each outage of the API.
func Loop(c settings.Config, config *rest.Config) func(context.Context) {
	return func(ctx context.Context) {
		all, err := Render(c)
		if err != nil {
			klog.FromContext(ctx).Error(err, "addons cannot be rendered")
			return
		}
		kick := loop.NewBell()
		kick.Ring()
		loop.Converge(ctx, kick, "addons", func(ctx context.Context) error {
			if err := Apply(ctx, config, all); err != nil {
				return err
			}
			klog.FromContext(ctx).Info("addons applied", "objects", len(all))
			return nil
		})
	}
}

// Apply applies every object with server-side apply: in parallel, the late ones last.
func Apply(ctx context.Context, config *rest.Config, all []Manifest) error {
	plain := rest.CopyConfig(config)
	plain.ContentConfig = rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()}
	client, err := rest.UnversionedRESTClientFor(plain)
	if err != nil {
		return fmt.Errorf("client for %s: %w", config.Host, err)
	}
	for _, late := range []bool{false, true} {
		failures := make([]error, len(all))
		var group sync.WaitGroup
		for i, addon := range all {
			if addon.late != late {
				continue
			}
			group.Go(func() {
				err := client.Patch(types.ApplyPatchType).AbsPath(addon.Path).
					Param("fieldManager", settings.FieldOwner).Param("force", "true").Body(addon.body).Do(ctx).Error()
				if err != nil {
					failures[i] = fmt.Errorf("apply %s: %w", addon.Path, err)
				}
			})
		}
		group.Wait()
		if err := errors.Join(failures...); err != nil {
			return err
		}
	}
	return nil
}
