"""What engines need above the lock: who is there, who does what, and what becomes of it when somebody dies.

It is loaded when a client first joins, offers or elects. See Cluster in the protocol.
"""
