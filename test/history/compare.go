// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

func finished(phase string) bool { return phase == "Succeeded" || phase == "Failed" }

// difference is what a pod here says of itself that the pod there does not, in words; empty if they agree. Either may be nil.
func difference(local, remote *Pod) string {
	switch {
	case local == nil && remote == nil:
		return ""
	case local == nil:
		return "there is a pod there for none here"
	case finished(local.Phase) && (remote == nil || remote.Phase == local.Phase):
		return ""
	case remote == nil:
		return "no pod there"
	case local.Deleting != remote.Deleting:
		return fmt.Sprintf("deleting here %t, there %t", local.Deleting, remote.Deleting)
	case local.Phase != remote.Phase:
		return fmt.Sprintf("phase here %s, there %s", local.Phase, remote.Phase)
	case local.Ready != remote.Ready:
		return fmt.Sprintf("ready here %t, there %t", local.Ready, remote.Ready)
	}
	mine := map[string]Container{}
	for _, c := range local.Containers {
		mine[c.Name] = c
	}
	for _, c := range remote.Containers {
		switch m, told := mine[c.Name]; {
		case !told:
			return fmt.Sprintf("container %s is not told of here", c.Name)
		case m.ID != c.ID:
			return fmt.Sprintf("container %s here %.30q, there %.30q", c.Name, m.ID, c.ID)
		case (m.Running == nil) != (c.Running == nil) || (m.Ended == nil) != (c.Ended == nil):
			return fmt.Sprintf("container %s runs or has ended on one side only", c.Name)
		case m.Ended != nil && (m.Ended.Code != c.Ended.Code || m.Ended.Said != c.Ended.Said):
			return fmt.Sprintf("container %s ended here with %d %q, there with %d %q", c.Name, m.Ended.Code, m.Ended.Said, c.Ended.Code, c.Ended.Said)
		case m.Restarts < c.Restarts:
			return fmt.Sprintf("container %s was restarted %d times here, %d there", c.Name, m.Restarts, c.Restarts)
		}
	}
	return ""
}

// sides are the pods of now: here by UID, there by the UID of the pod here that they are for.
type sides struct {
	local, remote map[string]*Pod
}

func newSides() *sides { return &sides{map[string]*Pod{}, map[string]*Pod{}} }

// take takes notice of a fact and returns the UID of the pod here that it is about; empty if it is about none.
func (s *sides) take(f Fact) string {
	if f.Pod == nil || f.Pod.Kind != "Pod" || f.Pod.For == "" {
		return ""
	}
	side := s.remote
	if f.Cluster == here {
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

func (s *sides) difference(uid string) string { return difference(s.local[uid], s.remote[uid]) }

// differences are all there are.
func (s *sides) differences() (all []string) {
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
