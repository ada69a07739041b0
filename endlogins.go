package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/merchant-operator/merchant-operator/console"
)

func endLoginsCommand() *cobra.Command {
	var redisURL string
	cmd := &cobra.Command{
		Use:   "end-logins ACCOUNT",
		Short: "Sign a person out of the console in every browser",
		Long: "ACCOUNT is in the console's log line \"signed in\": the issuer URL of the provider, \"#\" and the provider's\n" +
			"id of the person. First disable the person at the provider, who could sign in again otherwise.",
		Example: "  merchant-operator end-logins 'https://id.example.com#4711'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			account := strings.Join(args, "")
			ended, err := console.EndLogins(cmd.Context(), orRedisURL(redisURL), account)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Ended %d logins of %s.\n", ended, account)
			return err
		},
	}
	addRedisURL(cmd.Flags(), &redisURL)
	return cmd
}
