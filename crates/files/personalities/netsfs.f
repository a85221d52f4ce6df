# A network file share: programs are launched, documents rewritten and appended to, directories listed.
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
  flowop openfile name=launchopen1,filesetname=$set,fd=1,indexed=$fileindex
  flowop readwholefile name=launchread1,fd=1,iosize=$readiosize,iters=$turns
  flowop closefile name=launchclose1,fd=1
}
define flowop name=rmw,$set {
  flowop openfile name=rmwopen1,filesetname=$set,fd=1
  flowop readwholefile name=rmwread1,fd=1,iosize=$readiosize
  flowop createfile name=rmwcreate1,filesetname=$set,fd=2
  flowop writewholefile name=rmwwrite1,fd=2,srcfd=1,iosize=$readiosize
  flowop closefile name=rmwclose1,fd=1
  flowop closefile name=rmwclose2,fd=2
  flowop deletefile name=rmwdelete1,filesetname=$set
}
define flowop name=appnd,$set {
  flowop openfile name=appndopen1,filesetname=$set,fd=1
  flowop appendfilerand name=appndwrite1,fd=1,iosize=$appendsize
  flowop closefile name=appndclose1,fd=1
}
define process name=clients1,instances=1 {
  thread name=client1,memsize=10m,instances=$nthreads {
    flowop launch name=launches1,iters=4,$set=shares
    flowop rmw name=rewrites1,iters=2,$set=shares
    flowop appnd name=appends1,iters=2,$set=shares
    flowop statfile name=look1,filesetname=shares,iters=5
    flowop listdir name=browse1,filesetname=shares
    flowop eventlimit name=limit1
  }
}
run 60
