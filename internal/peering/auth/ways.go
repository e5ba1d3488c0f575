// SPDX-License-Identifier: Apache-2.0

package auth

import "context"

// ways answers a dry run that asks for the ways to the gateways. They are a help, so a failure to find them fails nothing.
func (s *Server) ways(ctx context.Context, r registrationRequest) []byte {
	if !r.Ways || s.options.Ways == nil {
		return nil
	}
	found, err := s.options.Ways(ctx)
	if err != nil {
		s.options.Log.Error(err, "the ways to the gateways are unknown")
	}
	return found
}
