package main

import (
	"github.com/spf13/cobra"

	"github.com/merchant-operator/merchant-operator/dispatcher"
)

func deadLettersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead-letters",
		Short: "List and resend webhook events that could not be delivered",
		Long: "An event becomes a dead letter after its last attempt, when its endpoint answers 410, or while its\n" +
			"endpoint is disabled. It is kept for 30 days.",
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(listDeadLettersCommand(), resendDeadLettersCommand())
	return cmd
}

func listDeadLettersCommand() *cobra.Command {
	var options dispatcher.ListOptions
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List dead letters",
		Example: "  merchant-operator dead-letters list --merchant mer_k3v9x0a7c2qd",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.RedisURL = orRedisURL(options.RedisURL)
			return dispatcher.ListDeadLetters(cmd.Context(), options, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	addRedisURL(flags, &options.RedisURL)
	flags.StringVar(&options.MerchantID, "merchant", "", "list only dead letters of this merchant (mer_...); empty: all")
	flags.IntVar(&options.Limit, "limit", 100, "maximum number to list; 0: all")
	flags.StringVarP(&options.Output, "output", "o", "table", "output format: table or json")
	return cmd
}

func resendDeadLettersCommand() *cobra.Command {
	var options dispatcher.ResendOptions
	cmd := &cobra.Command{
		Use:   "resend [EVENT...]",
		Short: "Send dead letters again",
		Long: "The events are due at once, with the same id and bytes and a new retry schedule. Resume a disabled\n" +
			"endpoint first: change spec.webhook.resumeTrigger of its Merchant.",
		Example: "  merchant-operator dead-letters resend evt_0aK3v9...\n" +
			"  merchant-operator dead-letters resend --merchant mer_k3v9x0a7c2qd",
		RunE: func(cmd *cobra.Command, args []string) error {
			options.RedisURL = orRedisURL(options.RedisURL)
			options.IDs = args
			return dispatcher.ResendDeadLetters(cmd.Context(), options, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	addRedisURL(flags, &options.RedisURL)
	flags.StringVar(&options.MerchantID, "merchant", "", "resend all dead letters of this merchant (mer_...)")
	flags.BoolVar(&options.All, "all", false, "resend the dead letters of all merchants")
	return cmd
}
