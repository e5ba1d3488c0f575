// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"liqo.io/liqo/internal/kube/quantities"
	"liqo.io/liqo/internal/offloading/kinds"
)

// Kinds whose objects use more than bytes.
var (
	Services = kinds.Service.Remote.GroupResource()
	Claims   = kinds.PersistentVolumeClaim.Remote.GroupResource()
)

// maxStorage is the most that a claim counts, so that sums fit into an int64.
const maxStorage = 1 << 52

// object is what counts of an object, of whichever kind.
type object struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Type  string `json:"type"`
		Ports []struct {
			NodePort int64 `json:"nodePort"`
		} `json:"ports"`
		AllocateLoadBalancerNodePorts *bool  `json:"allocateLoadBalancerNodePorts"`
		ExternalTrafficPolicy         string `json:"externalTrafficPolicy"`
		Resources                     struct {
			Requests struct {
				Storage resource.Quantity `json:"storage"`
			} `json:"requests"`
		} `json:"resources"`
	} `json:"spec"`
}

// Measure returns what an object uses that is stored as this JSON, and its name. A caller that knows the name gives it, and spares most objects their decoding.
func Measure(kind schema.GroupResource, text []byte, name string) (Use, string, error) {
	use := Use{Bytes: int64(len(text))}
	switch {
	case kind == Services || kind == Claims:
		var read object
		if err := decode(text, &read); err != nil {
			return use, name, err
		}
		if kind == Services {
			read.service(&use)
		} else if asked := &read.Spec.Resources.Requests.Storage; asked.CmpInt64(maxStorage) > 0 {
			use[Storage] = maxStorage
		} else {
			use[Storage] = max(asked.Value(), 0)
		}
		return use, read.Metadata.Name, nil
	case name == "": // the API server makes it up
		var read struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		err := json.Unmarshal(text, &read)
		return use, read.Metadata.Name, err
	}
	return use, name, nil
}

// decode reads an object, unless it states a quantity that takes long to read.
func decode(text []byte, into *object) error {
	if err := quantities.CheckJSON(text); err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// service counts the node ports that the API server assigns to a Service, and its load balancer.
func (o *object) service(use *Use) {
	balanced := o.Spec.Type == "LoadBalancer"
	if balanced {
		use[LoadBalancers] = 1
		if o.Spec.ExternalTrafficPolicy == "Local" { // one for health checks
			use[NodePorts] = 1
		}
	}
	all := o.Spec.Type == "NodePort" || balanced && (o.Spec.AllocateLoadBalancerNodePorts == nil || *o.Spec.AllocateLoadBalancerNodePorts)
	for _, port := range o.Spec.Ports {
		if all || port.NodePort != 0 {
			use[NodePorts]++
		}
	}
}
