// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

var began = time.Now()

// now goes on as it began: one of the causes moves the clock of the machine.
func now() time.Time { return began.Add(time.Since(began)) }

// Fact is one line of a history: something that was seen at a time. Exactly one of the pointers is set.
type Fact struct {
	At time.Time `json:"at"`
	// Cluster is here (where users make pods) or there (where they run); empty if it is neither's.
	Cluster string   `json:"cluster,omitempty"`
	Pod     *Pod     `json:"pod,omitempty"`
	Process *Process `json:"process,omitempty"`
	Gap     *Gap     `json:"gap,omitempty"`
	Mark    *Mark    `json:"mark,omitempty"`
	// Gone: the pod or process is not there any more; what is said of it is the last that was seen.
	Gone bool `json:"gone,omitempty"`
}

// The two clusters.
const (
	here  = "here"
	there = "there"
)

// Pod is how a pod, or the wish for one, stood.
type Pod struct {
	Kind      string `json:"kind"` // Pod or ShadowPod
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// For is the UID of the pod here that this one is for; of that itself, too.
	For        string      `json:"for"`
	Owner      string      `json:"owner,omitempty"`
	Node       string      `json:"node,omitempty"`
	Phase      string      `json:"phase,omitempty"`
	Policy     string      `json:"policy,omitempty"`
	Ready      bool        `json:"ready,omitempty"`
	Deleting   bool        `json:"deleting,omitempty"`
	Containers []Container `json:"containers,omitempty"`
}

// Container is how one stood. Kubelets tell times in whole seconds.
type Container struct {
	Name     string     `json:"name"`
	ID       string     `json:"id,omitempty"`
	Restarts int32      `json:"restarts,omitempty"`
	Running  *time.Time `json:"running,omitempty"` // since
	Ended    *End       `json:"ended,omitempty"`
	Before   *End       `json:"before,omitempty"` // how the run before this one ended
}

// End is how a container's run ended.
type End struct {
	ID    string    `json:"id,omitempty"`
	Code  int32     `json:"code"`
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	// Said is the termination message: see command stamp.
	Said string `json:"said,omitempty"`
}

// Process is one of a container, as the machine itself shows it. No API server has a part in that.
type Process struct {
	ID        int       `json:"id"`
	For       string    `json:"for"`
	PodUID    string    `json:"podUID"`
	Container string    `json:"container"`
	Began     time.Time `json:"began"`
	Until     time.Time `json:"until"` // last time it was seen alive
}

// Gap says that what happened to objects of a kind after Since was not watched, only looked at again now.
type Gap struct {
	Kind  string    `json:"kind"`
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
}

// Mark is what the test says of its own doing.
type Mark struct {
	// Kind is steady (all that was wished runs), begin and end of a cause, asked (somebody wants pods deleted), or stop.
	Kind string `json:"kind"`
	// What is the cause's name.
	What string `json:"what,omitempty"`
	// Nodes there whose containers the cause ends. Only for pods on them a restart is no fault.
	Nodes []string `json:"nodes,omitempty"`
	// Names of the pods here that are to be deleted, as namespace/name.
	Names []string `json:"names,omitempty"`
}

// The kinds of marks.
const (
	markSteady = "steady"
	markBegin  = "begin"
	markEnd    = "end"
	markAsked  = "asked"
	markStop   = "stop"
)

// read reads a history.
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
