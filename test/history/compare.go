// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

func finished(phase string) bool { return phase == "Succeeded" || phase == "Failed" }

// difference describes in what the status of the consumer's pod differs from the provider's; empty if they agree. Either may be nil.
func difference(local, remote *Pod) string {
	switch {
	case local == nil && remote == nil:
		return ""
	case local == nil:
		return "the provider has a pod for none of the consumer"
	case finished(local.Phase) && (remote == nil || remote.Phase == local.Phase):
		return ""
	case remote == nil:
		return "the provider has no pod"
	case local.Deleting != remote.Deleting:
		return fmt.Sprintf("deleting in the consumer %t, in the provider %t", local.Deleting, remote.Deleting)
	case local.Phase != remote.Phase:
		return fmt.Sprintf("phase in the consumer %s, in the provider %s", local.Phase, remote.Phase)
	case local.Ready != remote.Ready:
		return fmt.Sprintf("ready in the consumer %t, in the provider %t", local.Ready, remote.Ready)
	}
	shown := map[string]Container{}
	for _, c := range local.Containers {
		shown[c.Name] = c
	}
	for _, c := range remote.Containers {
		switch l, found := shown[c.Name]; {
		case !found:
			return fmt.Sprintf("container %s is missing in the consumer's status", c.Name)
		case l.ID != c.ID:
			return fmt.Sprintf("container %s in the consumer %.30q, in the provider %.30q", c.Name, l.ID, c.ID)
		case (l.Running == nil) != (c.Running == nil) || (l.Ended == nil) != (c.Ended == nil):
			return fmt.Sprintf("container %s runs or has ended in one cluster only", c.Name)
		case l.Ended != nil && (l.Ended.Code != c.Ended.Code || l.Ended.Message != c.Ended.Message):
			return fmt.Sprintf(
				"container %s ended in the consumer with %d %q, in the provider with %d %q", c.Name, l.Ended.Code, l.Ended.Message, c.Ended.Code,
				c.Ended.Message,
			)
		case l.Restarts < c.Restarts:
			return fmt.Sprintf("container %s was restarted %d times in the consumer, %d in the provider", c.Name, l.Restarts, c.Restarts)
		}
	}
	return ""
}

// snapshot is the current pods of both clusters by the UID of the consumer's pod.
type snapshot struct {
	local, remote map[string]*Pod
}

func newSnapshot() *snapshot { return &snapshot{map[string]*Pod{}, map[string]*Pod{}} }

// apply updates the snapshot and returns the UID of the consumer's pod that the fact is about; empty if it is about none.
func (s *snapshot) apply(f Fact) string {
	if f.Pod == nil || f.Pod.Kind != "Pod" || f.Pod.For == "" {
		return ""
	}
	side := s.remote
	if f.Cluster == consumer {
		side = s.local
	}
	switch known := side[f.Pod.For]; {
	case !f.Gone:
		side[f.Pod.For] = f.Pod
	case known != nil && known.UID == f.Pod.UID:
		delete(side, f.Pod.For)
	}
	return f.Pod.For
}

func (s *snapshot) difference(uid string) string { return difference(s.local[uid], s.remote[uid]) }

func (s *snapshot) differences() (all []string) {
	for uid, local := range s.local {
		if what := s.difference(uid); what != "" {
			all = append(all, local.Name+": "+what)
		}
	}
	for uid, remote := range s.remote {
		if s.local[uid] == nil {
			all = append(all, remote.Name+": "+s.difference(uid))
		}
	}
	return all
}
