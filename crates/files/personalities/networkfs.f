# A network file share as seen by several kinds of clients: readers, writers and administrators.
set $dir=/tmp
set $eventrate=0
set $nfiles=2000
set $meandirwidth=20
set $nthreads=8
set $readiosize=32k
set $appendsize=randvar(type=gamma,mean=8k,gamma=1500)
set $filesize=randvar(type=tabular,min=1k,round=1k,randtable={{60,1k,8k},{25,8k,64k},{12,64k,512k},{3,512k,2m}})
set $fileindex=randvar(type=gamma,mean=200,gamma=1000)
eventgen rate=$eventrate
define fileset name=shares,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth,prealloc=80
define flowop name=launch,$set,$turns=1 {
  flowop openfile name=launchopen,filesetname=$set,fd=1,indexed=$fileindex
  flowop readwholefile name=launchread,fd=1,iosize=$readiosize,iters=$turns
  flowop closefile name=launchclose,fd=1
}
define flowop name=rmw,$set {
  flowop openfile name=rmwopen,filesetname=$set,fd=1
  flowop readwholefile name=rmwread,fd=1,iosize=$readiosize
  flowop createfile name=rmwcreate,filesetname=$set,fd=2
  flowop writewholefile name=rmwwrite,fd=2,srcfd=1,iosize=$readiosize
  flowop closefile name=rmwclose1,fd=1
  flowop closefile name=rmwclose2,fd=2
  flowop deletefile name=rmwdelete,filesetname=$set
}
define flowop name=appnd,$set {
  flowop openfile name=appndopen,filesetname=$set,fd=1
  flowop appendfilerand name=appndwrite,fd=1,iosize=$appendsize
  flowop closefile name=appndclose,fd=1
}
define process name=readers,instances=1 {
  thread name=reader,memsize=10m,instances=$nthreads {
    flowop launch name=launches,iters=3,$set=shares,$turns=2
    flowop statfile name=look,filesetname=shares,iters=2
    flowop eventlimit name=readlimit
  }
}
define process name=writers,instances=1 {
  thread name=writer,memsize=10m,instances=2 {
    flowop rmw name=rewrites,$set=shares
    flowop appnd name=appends,iters=2,$set=shares
    flowop eventlimit name=writelimit
  }
}
define process name=admin,instances=1 {
  thread name=admin,memsize=10m,instances=1 {
    flowop listdir name=browse,filesetname=shares,iters=4
    flowop statfile name=inspect,filesetname=shares,iters=10
    flowop eventlimit name=adminlimit
  }
}
run 60
