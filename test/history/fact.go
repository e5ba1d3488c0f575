// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

var processStart = time.Now()

// now continues monotonically from the start of this process, because one of the causes moves the clock of the machine.
func now() time.Time { return processStart.Add(time.Since(processStart)) }

// Fact is one line of a history: one observation and its time. Exactly one of the pointers is set.
type Fact struct {
	At time.Time `json:"at"`
	// Cluster is consumer or provider; empty if the fact belongs to neither.
	Cluster string   `json:"cluster,omitempty"`
	Pod     *Pod     `json:"pod,omitempty"`
	Process *Process `json:"process,omitempty"`
	Gap     *Gap     `json:"gap,omitempty"`
	Marker  *Marker  `json:"marker,omitempty"`
	// Gone means that the pod or process does not exist any more; its fields hold the last observation.
	Gone bool `json:"gone,omitempty"`
}

// The two clusters: users create pods in the consumer, and the pods run in the provider.
const (
	consumer = "consumer"
	provider = "provider"
)

// Pod is the observed state of a Pod or a ShadowPod.
type Pod struct {
	Kind      string `json:"kind"` // Pod or ShadowPod
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// For is the UID of the consumer's pod for which this object exists; for the consumer's pod it is its own UID.
	For        string      `json:"for"`
	Owner      string      `json:"owner,omitempty"`
	Node       string      `json:"node,omitempty"`
	Phase      string      `json:"phase,omitempty"`
	Policy     string      `json:"policy,omitempty"`
	Ready      bool        `json:"ready,omitempty"`
	Deleting   bool        `json:"deleting,omitempty"`
	Containers []Container `json:"containers,omitempty"`
}

// Container is the observed state of one container. Kubelets report times in whole seconds.
type Container struct {
	Name     string     `json:"name"`
	ID       string     `json:"id,omitempty"`
	Restarts int32      `json:"restarts,omitempty"`
	Running  *time.Time `json:"running,omitempty"` // since
	Ended    *End       `json:"ended,omitempty"`
	Previous *End       `json:"previous,omitempty"` // how the run before this one ended
}

// End is how a container's run ended.
type End struct {
	ID      string    `json:"id,omitempty"`
	Code    int32     `json:"code"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	Message string    `json:"message,omitempty"` // the termination message, which command stamp writes
}

// Process is a container's process as /proc of this machine shows it, independent of any API server.
type Process struct {
	ID        int       `json:"id"`
	For       string    `json:"for"`
	PodUID    string    `json:"podUID"`
	Container string    `json:"container"`
	Started   time.Time `json:"started"`
	Until     time.Time `json:"until"` // last time it was seen alive
}

// Gap states that changes to objects of a kind after Since were not watched: the objects were listed anew at the time of the fact.
type Gap struct {
	Kind  string    `json:"kind"`
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
}

// Marker is an action of the test itself.
type Marker struct {
	// Kind is one of the constants below.
	Kind string `json:"kind"`
	// Cause is the name of the cause that starts or ends, or of the deletion.
	Cause string `json:"cause,omitempty"`
	// Nodes are the provider's nodes whose containers the cause ends: only pods on them may be restarted. Of a deletion, they are the
	// consumer's virtual nodes whose pods the test deletes.
	Nodes []string `json:"nodes,omitempty"`
	// Names are the consumer's pods that the test deletes, as namespace/name; they may be patterns, as package path has them.
	Names []string `json:"names,omitempty"`
}

// The kinds of markers.
const (
	markerSteady   = "steady"   // all desired pods run
	markerStart    = "start"    // of a cause
	markerEnd      = "end"      // of a cause; it is answered when both clusters agree
	markerOver     = "over"     // of a cause, while users go on; it is answered at once
	markerDeletion = "deletion" // the test is about to delete pods
	markerDeleted  = "deleted"  // the deletion of this name is complete: pods that appear later are not among them
	// markerWithdrawal: a namespace loses the providers of these virtual nodes, whose containers end. Its pods may start once more if they are still
	// there when it gains the provider again.
	markerWithdrawal = "withdrawal"
	markerReturned   = "returned" // the withdrawal of this name is over: what starts later may not be ended by it
	markerStop       = "stop"     // of the recorder
)

// read parses a history, one Fact per line.
func read(from io.Reader) (facts []Fact, err error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 4<<20)
	for n := 1; lines.Scan(); n++ {
		var f Fact
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		facts = append(facts, f)
	}
	return facts, lines.Err()
}
