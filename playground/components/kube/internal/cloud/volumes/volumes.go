// SPDX-License-Identifier: Apache-2.0

// Package volumes provisions claims with directories of nodes.
//
// The upper half decides where a volume is; the lower half makes and removes its directory. volumes_test.go proves both.
package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"liqo.io/liqo/playground/components/kube/internal/cloud/loop"
	"liqo.io/liqo/playground/components/kube/internal/cloud/settings"
)

const (
	provisionerName = "playground.local/host-path"
	// Directory holds one directory per volume, below the root of the volume's node.
	Directory = "/var/local-path"
)

// plan returns the volume for a claim on a real node: a directory of that node,
// usable from that node only. Its path is the one a pod of that node sees.
func plan(options controller.ProvisionOptions) *corev1.PersistentVolume {
	claim := options.PVC
	directory := fmt.Sprintf("%s_%s_%s", options.PVName, claim.Namespace, claim.Name)
	kind := corev1.HostPathDirectory // a lost directory must be an error, not replaced by an empty one
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    claim.Spec.VolumeMode,
			MountOptions:                  options.StorageClass.MountOptions,
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage],
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: path.Join(Directory, directory), Type: &kind},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{options.SelectedNodeName},
				}},
			}}}},
		},
	}
}

// location returns the node of a volume and its directory relative to that node's
// root. A user who may write PersistentVolumes could make us delete any directory: so
// volumeLocation accepts only what planVolume could have made.
func location(volume *corev1.PersistentVolume) (node, directory string, err error) {
	if volume.Spec.HostPath == nil {
		return "", "", fmt.Errorf("volume %s: it is not a host path", volume.Name)
	}
	parent, name := path.Split(volume.Spec.HostPath.Path)
	if parent != Directory+"/" || !strings.HasPrefix(name, volume.Name+"_") {
		return "", "", fmt.Errorf("volume %s: its path %q is not %s/%s_...; remove it by hand", volume.Name, volume.Spec.HostPath.Path, Directory, volume.Name)
	}
	affinity := volume.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil || len(affinity.Required.NodeSelectorTerms) != 1 ||
		len(affinity.Required.NodeSelectorTerms[0].MatchExpressions) != 1 {
		return "", "", fmt.Errorf("volume %s: its node affinity does not name one node; remove %s by hand", volume.Name, volume.Spec.HostPath.Path)
	}
	expression := affinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
	if expression.Key != corev1.LabelHostname || len(expression.Values) != 1 {
		return "", "", fmt.Errorf("volume %s: its node affinity does not name one node; remove %s by hand", volume.Name, volume.Spec.HostPath.Path)
	}
	return expression.Values[0], strings.TrimPrefix(Directory, "/") + "/" + name, nil
}

// provisioner makes and removes directories. It needs no running machine: the root of a node
// is a directory of the host.
type provisioner struct {
	nodes  map[string]settings.Node
	events record.EventRecorder
}

// Provision implements controller.Provisioner.
func (p provisioner) Provision(ctx context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	node, ok := p.nodes[options.SelectedNodeName]
	if !ok {
		// A retry does not help, a change of the claim does: no error, one event.
		text := fmt.Sprintf("node %q has no disk (only real nodes of the playground have); schedule the pod to a real node", options.SelectedNodeName)
		if options.SelectedNodeName == "" {
			text = "no node was selected; use a StorageClass with volumeBindingMode WaitForFirstConsumer, such as standard"
		}
		p.events.Event(options.PVC, corev1.EventTypeWarning, "ProvisioningFailed", text)
		return nil, controller.ProvisioningFinished, &controller.IgnoredError{Reason: text}
	}
	volume := plan(options)
	_, directory, err := location(volume)
	if err == nil {
		err = makeDirectory(node.Root, directory)
	}
	if err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("directory on node %s: %w", options.SelectedNodeName, err)
	}
	klog.FromContext(ctx).Info("volume made", "volume", volume.Name, "node", options.SelectedNodeName, "claim", klog.KObj(options.PVC))
	return volume, controller.ProvisioningFinished, nil
}

// Delete implements controller.Provisioner. The volumes of a removed node are gone with it.
func (p provisioner) Delete(ctx context.Context, volume *corev1.PersistentVolume) error {
	name, directory, err := location(volume)
	if err != nil {
		return err
	}
	node, ok := p.nodes[name]
	if !ok {
		return nil
	}
	if err := removeDirectory(node.Root, directory); err != nil {
		return fmt.Errorf("directory on node %s: %w", name, err)
	}
	klog.FromContext(ctx).Info("volume removed", "volume", volume.Name, "node", name)
	return nil
}

// makeDirectory makes a directory that any user of a pod can write to. os.Root prevents links
// from leading out of the node.
func makeDirectory(rootPath, directory string) error {
	root, err := os.OpenRoot(rootPath)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(directory, 0o755); err != nil {
		return fmt.Errorf("below %s: %w", rootPath, err)
	}
	return root.Chmod(directory, 0o777) // not at creation, where the umask applies
}

func removeDirectory(rootPath, directory string) error {
	root, err := os.OpenRoot(rootPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return root.RemoveAll(directory)
}

// Loop returns a loop that provisions claims of the playground's StorageClass. The controller's
// constructor must run before any watch: it writes to client-go's global scheme, which they read.
func Loop(
	ctx context.Context, nodes map[string]settings.Node, client kubernetes.Interface, watched informers.SharedInformerFactory, events record.EventRecorder,
) (func(context.Context), error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	claims := watched.Core().V1().PersistentVolumeClaims().Informer()
	made := watched.Core().V1().PersistentVolumes().Informer()
	classes := watched.Storage().V1().StorageClasses().Informer()
	work := loop.NewBell()
	onClaim, errClaim := claims.AddEventHandler(whenOurs(work, "volume.kubernetes.io/storage-provisioner"))
	onVolume, errVolume := made.AddEventHandler(whenOurs(work, "pv.kubernetes.io/provisioned-by"))
	if err := errors.Join(errClaim, errVolume); err != nil {
		return nil, fmt.Errorf("watch claims and volumes: %w", err)
	}
	provision := controller.NewProvisionController(ctx, client, provisionerName, provisioner{nodes: nodes, events: events},
		controller.ClaimsInformer(claims), controller.VolumesInformer(made), controller.ClassesInformer(classes),
		controller.LeaderElection(false), // it would write every two seconds, and there is only one replica
		controller.ResyncPeriod(0),
		controller.AddFinalizer(true), // so that deleting the volume object also removes the directory
		controller.RateLimiter(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute)),
		controller.FailedProvisionThreshold(0), controller.FailedDeleteThreshold(0), // never give up
	)
	return func(ctx context.Context) {
		// The controller polls ten times a second for as long as it runs, which is most of the
		// cost of an idle cluster here: start it with the first claim or volume.
		select {
		case <-ctx.Done(): // Run then only frees the queues
		case <-work:
		}
		_ = claims.RemoveEventHandler(onClaim) // if it stays, its notifications are ignored
		_ = made.RemoveEventHandler(onVolume)
		provision.Run(ctx)
	}, nil
}

// whenOurs rings for claims and volumes that an annotation assigns to this provisioner.
func whenOurs(work loop.Bell, annotation string) cache.ResourceEventHandler {
	check := func(object any) {
		if accessor, err := meta.Accessor(object); err == nil && accessor.GetAnnotations()[annotation] == provisionerName {
			work.Ring()
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: check, UpdateFunc: func(_, object any) { check(object) }}
}
